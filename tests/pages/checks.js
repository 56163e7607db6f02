// Rules of ours that no general checker knows; each fault is one line of text. The page's address names the sample.
const faults = [];
const all = (selector) => [...document.querySelectorAll(selector)];
if (all("h1").length !== 1) faults.push(`${all("h1").length} h1`);
let level = 0;
for (const heading of all("h1, h2, h3, h4")) {
  if (heading.closest("dialog")) continue;
  const now = Number(heading.tagName[1]);
  if (now > level + 1) faults.push(`heading jumps to ${heading.tagName}: ${heading.textContent.trim()}`);
  level = now;
}
for (const head of all("th:not([scope])")) faults.push(`th without scope: ${head.textContent}`);
const ids = all("[id]").map((each) => each.id);
for (const id of new Set(ids.filter((id, index) => ids.indexOf(id) !== index))) faults.push(`id twice: ${id}`);
const wide = document.documentElement.scrollWidth - innerWidth;
if (wide > 0) {
  const culprit = all("main *").find((each) => each.getBoundingClientRect().right > innerWidth + 1 && !each.closest("pre, .log, .sr, svg"));
  faults.push(`scrolls sideways by ${wide} px, for one by ${culprit?.outerHTML.slice(0, 160)}`);
}
for (const each of all("a, button, input, select, summary")) {
  const box = each.getBoundingClientRect();
  const inText = each.closest("p, li, dd, td, .l, figcaption, .foot, label");
  if (box.width && box.height < 24 && !inText && !each.matches(".skip, [type=checkbox]")) faults.push(`target of ${Math.round(box.height)} px: ${each.outerHTML.slice(0, 120)}`);
}
if (all("main script, main style, [style], [onclick], [onerror]").length && !all(".tip").length) faults.push("inline script or style");
if (window.broken) faults.push("text became markup");
return faults;
