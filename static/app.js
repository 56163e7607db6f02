// What every page adds where JavaScript runs: the theme switch, keys, names of grid cells on hover, values under the
// pointer in plots, and drafts that survive a closed tab.
"use strict";
const $ = (id) => document.getElementById(id);
const store = {
  get(key) { try { return localStorage.getItem(key); } catch { return null; } },
  set(key, value) { try { value === null ? localStorage.removeItem(key) : localStorage.setItem(key, value); } catch { /* Full or off. */ } },
};

// Theme: system, light, dark, and round again.
const themes = ["system", "light", "dark"];
function showTheme(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  if ($("theme")) $("theme").textContent = `Theme: ${theme}`;
}
showTheme(themes.includes(store.get("theme")) ? store.get("theme") : "system");
$("theme")?.addEventListener("click", () => {
  const next = themes[(themes.indexOf(store.get("theme") ?? "system") + 1) % themes.length];
  store.set("theme", next === "system" ? null : next);
  showTheme(next);
});

// What was just done is told once: a reload or a shared address does not tell it again.
if (/[?&]done=/.test(location.search)) {
  const address = new URL(location.href);
  address.searchParams.delete("done");
  history.replaceState(null, "", address);
}

// A one-time link presses its own button.
document.querySelector("form[data-submit-now]")?.requestSubmit();
document.querySelector(".faults[tabindex]")?.focus();

// Keys. None acts while someone types.
let pending = "";
const goes = { j: "/jobs", n: "/nodes", c: "/clusters", t: "/teams", s: "/settings" };
function rowLinks() { return [...document.querySelectorAll("table.rows a.row")]; }
function step(by) {
  const links = rowLinks();
  if (!links.length) return;
  const at = links.indexOf(document.activeElement);
  const next = links[Math.max(0, Math.min(links.length - 1, at < 0 ? 0 : at + by))];
  next.focus();
  next.closest("tr").scrollIntoView({ block: "nearest" });
}
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.closest?.("input:not([type=checkbox]), textarea, select, [contenteditable]");
  if (event.key === "Escape" && typing && typing.type !== "textarea") return typing.blur();
  if (typing || $("keys")?.open) return;
  if (pending === "g") {
    pending = "";
    if (goes[event.key]) { event.preventDefault(); location.href = goes[event.key]; }
    return;
  }
  const find = $("l-search") ?? $("find");
  if (event.key === "/" && find) { event.preventDefault(); find.focus(); find.select(); }
  else if (event.key === "?") $("keys")?.showModal();
  else if (event.key === "g") { pending = "g"; setTimeout(() => { pending = ""; }, 1500); }
  else if (event.key === "j") step(1);
  else if (event.key === "k") step(-1);
  else if (event.key === "c" && document.querySelector('a[href="/jobs/new"]')) location.href = "/jobs/new";
});

// A fault's line is a way to it in the text.
document.addEventListener("click", (event) => {
  const fault = event.target.closest?.("a[data-line]");
  const text = $("document");
  if (fault && text) {
    event.preventDefault();
    const lines = text.value.split("\n");
    const line = Number(fault.dataset.line) - 1;
    const start = lines.slice(0, line).reduce((sum, each) => sum + each.length + 1, 0);
    text.focus();
    text.setSelectionRange(start, start + (lines[line]?.length ?? 0));
    text.scrollTop = (text.scrollHeight / lines.length) * Math.max(0, line - 4);
  }
});

// A draft is kept until it was submitted and accepted; an answer by the server always wins over it.
for (const form of document.querySelectorAll("form[data-keep]")) {
  const field = form.querySelector("textarea");
  const key = `draft:${form.dataset.keep}`;
  const fresh = location.search === "" && !document.querySelector(".faults, .panel.ok");
  if (fresh && store.get(key)) field.value = store.get(key);
  field.addEventListener("input", () => store.set(key, field.value));
  // Two spaces for Tab would trap the keyboard; Tab moves on, as everywhere.
}
if (/^\/jobs\/job_/.test(location.pathname)) store.set("draft:new-job", null);

// One tip for grid cells and plots; it floats and takes no pointer.
let tip = null;
function showTip(text, x, y) {
  if (!text) { tip?.remove(); tip = null; return; }
  if (!tip) { tip = document.createElement("div"); tip.className = "tip"; tip.setAttribute("aria-hidden", "true"); document.body.append(tip); }
  tip.textContent = text;
  tip.style.left = `${Math.max(4, Math.min(x + 12, innerWidth - tip.offsetWidth - 8))}px`;
  tip.style.top = `${y > innerHeight - 60 ? y - 40 : y + 16}px`;
}
function cellTip(cell, x, y) {
  const run = cell.closest("[data-run]");
  showTip(`${cell.textContent}: ${run.dataset.run.replace(/^[\d,]+ /, "")}`, x, y);
}

// Moments are told in the reader's own zone first, where that is not UTC.
const part = (at, options) => new Intl.DateTimeFormat("sv-SE", options).format(at);
const ownZone = (at) => new Intl.DateTimeFormat("en", { timeZoneName: "short" }).formatToParts(at).find((each) => each.type === "timeZoneName").value;
const isUtc = (at) => at.getTimezoneOffset() === 0;
const ownClock = (at) => part(at, { dateStyle: "short", timeStyle: "medium" });
function ownTime(at) {
  const utc = `${at.toISOString().slice(0, 19).replace("T", " ")} UTC`;
  return isUtc(at) ? utc : `${ownClock(at)} ${ownZone(at)} (${utc})`;
}
// A mark of an axis as long as it was: a day's begin elsewhere is an hour of another day here.
function ownMark(text, at) {
  if (isUtc(at)) return;
  const was = text.textContent;
  const clock = { hour: "2-digit", minute: "2-digit", ...(/:\d\d:/.test(was) && { second: "2-digit" }) };
  const day = /:/.test(was) ? "" : `${at.getDate()} ${at.toLocaleString("en", { month: "short" })} `;
  text.textContent = `${day}${part(at, clock)}${/ UTC/.test(was) ? ` ${ownZone(at)}` : ""}`;
}
function ownAxes(root) {
  for (const text of root.querySelectorAll("text[data-at]")) ownMark(text, new Date(Number(text.dataset.at)));
  for (const svg of root.querySelectorAll("svg[data-hover]")) {
    const { time, marks } = JSON.parse(svg.dataset.hover);
    if (!time || !marks.length) continue;
    const labels = [...svg.querySelectorAll("text")];
    for (const [at, label] of marks) {
      const place = labels.findIndex((text) => text.textContent.trim() === label);
      if (place >= 0) ownMark(labels.splice(place, 1)[0], new Date(at));
    }
    const foot = labels.find((text) => text.textContent.trim() === "time, UTC");
    const first = new Date(marks[0][0]);
    if (foot && !isUtc(first)) foot.textContent = `time, ${ownZone(first)}`;
  }
}
function ownTimes(root) {
  ownAxes(root);
  for (const time of root.querySelectorAll("time.exact")) {
    const at = new Date(time.dateTime);
    if (isNaN(at) || isUtc(at)) continue;
    time.title = time.textContent;
    time.textContent = `${ownClock(at)} ${ownZone(at)}`;
  }
}
ownTimes(document);
function ownTitle(event) {
  const time = event.target.closest?.("time[title]:not(.exact)");
  if (time && !isNaN(new Date(time.dateTime))) time.title = ownTime(new Date(time.dateTime));
}
document.addEventListener("pointerover", ownTitle);
const hovers = new WeakMap();
document.addEventListener("pointermove", (event) => {
  const cell = event.target.closest?.(".run a");
  if (cell) return cellTip(cell, event.clientX, event.clientY);
  const svg = event.target.closest?.("svg[data-hover]");
  if (!svg) return tip && showTip("");
  if (!hovers.has(svg)) hovers.set(svg, JSON.parse(svg.dataset.hover));
  const data = hovers.get(svg);
  const box = svg.getBoundingClientRect();
  const at = ((event.clientX - box.left) / box.width) * data.width;
  if (at < data.left || at > data.right) return showTip("");
  const x = data.from + ((at - data.left) / (data.right - data.left)) * (data.to - data.from);
  let shown = null;
  const values = [];
  for (const { name, points } of data.series) {
    let best = null;
    for (const point of points) if (!best || Math.abs(point[0] - x) < Math.abs(best[0] - x)) best = point;
    if (best) { shown ??= best[0]; values.push(`${name} ${Number(best[1].toPrecision(4))}`); }
  }
  if (shown === null) return;
  const place = data.time ? ownTime(new Date(shown)) : `step ${Math.round(shown).toLocaleString("en")}`;
  showTip(`${place}: ${values.join(", ")}`, event.clientX, event.clientY);
});
document.addEventListener("focusin", (event) => {
  if (event.target.matches?.(".run a")) { const box = event.target.getBoundingClientRect(); cellTip(event.target, box.left, box.bottom); }
  else if (tip) showTip("");
});
// A drag over a plot looks closer: the page of its numbers shows that part, drawn and counted by the server.
document.addEventListener("pointerdown", (event) => {
  const svg = event.target.closest?.("svg[data-hover]");
  const figure = svg?.closest("[data-zoom]");
  if (!figure || event.button !== 0 || event.pointerType === "touch") return;
  event.preventDefault();
  const data = JSON.parse(svg.dataset.hover);
  const box = svg.getBoundingClientRect();
  const edge = (at) => Math.min(box.left + (data.right / data.width) * box.width, Math.max(box.left + (data.left / data.width) * box.width, at));
  const begin = edge(event.clientX);
  const band = document.createElement("div");
  band.className = "band";
  document.body.append(band);
  const draw = (x) => {
    band.style.left = `${Math.min(begin, x)}px`; band.style.width = `${Math.abs(x - begin)}px`;
    band.style.top = `${box.top}px`; band.style.height = `${box.height}px`;
  };
  draw(begin);
  const stop = new AbortController();
  const drop = () => { stop.abort(); band.remove(); };
  const move = (moved) => draw(edge(moved.clientX));
  const end = (up) => {
    drop();
    const ends = [begin, edge(up.clientX)].sort((a, b) => a - b);
    if (ends[1] - ends[0] < 6) return;
    const value = (at) => data.from + ((((at - box.left) / box.width) * data.width - data.left) / (data.right - data.left)) * (data.to - data.from);
    const [from, to] = [Math.floor(value(ends[0])), Math.ceil(value(ends[1]))];
    const say = (at) => (data.time ? new Date(at).toISOString() : at);
    const address = new URL(figure.dataset.zoom, location.href);
    address.searchParams.set("from", say(from));
    address.searchParams.set("to", say(to));
    location.href = address;
  };
  document.addEventListener("pointermove", move, { signal: stop.signal });
  document.addEventListener("pointerup", end, { signal: stop.signal });
  document.addEventListener("pointercancel", drop, { signal: stop.signal });
  document.addEventListener("keydown", (key) => { if (key.key === "Escape") drop(); }, { signal: stop.signal });
});
// Arrow keys walk a grid, so that 5,000 cells are not 5,000 presses of Tab.
function ownCells(root) {
  for (const grid of root.querySelectorAll("[data-cells]")) {
    const cells = [...grid.querySelectorAll(".run a")];
    cells.forEach((cell, index) => { cell.tabIndex = index ? -1 : 0; });
    grid.addEventListener("keydown", (event) => {
      const at = cells.indexOf(document.activeElement);
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key] ?? 0;
      const row = { ArrowDown: 1, ArrowUp: -1 }[event.key] ?? 0;
      if (at < 0 || (!by && !row)) return;
      event.preventDefault();
      const wide = Math.max(1, Math.floor((cells[at].parentElement.clientWidth + 2) / 26));
      const next = cells[Math.max(0, Math.min(cells.length - 1, at + by + row * wide))];
      cells[at].tabIndex = -1; next.tabIndex = 0; next.focus();
    });
  }
}
ownCells(document);
// One more key of a secret, with labels of its own.
$("more-pairs")?.addEventListener("click", () => {
  const pairs = [...document.querySelectorAll(".pair")];
  const fresh = pairs.at(-1).cloneNode(true);
  const number = pairs.length + 1;
  for (const label of fresh.querySelectorAll("label")) {
    const field = label.nextElementSibling;
    label.textContent = label.textContent.replace(/\d+$/, number);
    label.htmlFor = field.id = field.id.replace(/\d+$/, number);
    field.value = "";
  }
  pairs.at(-1).after(fresh);
  fresh.querySelector("input").focus();
});
