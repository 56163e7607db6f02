// Runs before the first paint, so that a chosen theme never flashes the other one.
"use strict";
try {
  const theme = localStorage.getItem("theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch { /* Storage is off: the system's theme holds. */ }
document.documentElement.classList.add("js");
