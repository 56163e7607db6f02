// Live changes. The server sends whole pieces of the page by id; a piece is put in place only where it differs, focus
// stays where it was, nothing moves under the pointer, and a lost connection says so until it is back.
"use strict";
(() => {
  const say = document.getElementById("live-state");
  const parser = new DOMParser();
  const held = new Map();
  let lostAt = 0;

  function tell(text, lost) {
    if (!say || say.textContent === text) return;
    say.textContent = text;
    say.classList.toggle("lost", lost);
    if (lost) { const link = document.createElement("a"); link.href = location.href; link.textContent = "Refresh"; say.append(" ", link); }
  }

  // The pointer rests on something that can be pressed, or text is being selected there: wait.
  function busy(element) {
    const hovered = element.matches(":hover") && element.querySelector("a:hover, button:hover, summary:hover, tr:hover, svg:hover");
    const selection = getSelection();
    return hovered || (selection && !selection.isCollapsed && element.contains(selection.anchorNode));
  }

  function keepOpen(from, to) {
    const open = [...from.querySelectorAll("details")].map((each) => each.open);
    [...to.querySelectorAll("details")].forEach((each, index) => { if (open[index] !== undefined) each.open = open[index]; });
  }

  function put(element, html) {
    // A row alone would lose its cells outside a table.
    const whole = html.trimStart().startsWith("<tr") ? `<table>${html}</table>` : html;
    const fresh = parser.parseFromString(whole, "text/html").getElementById(element.id);
    if (!fresh || fresh.outerHTML === element.dataset.was) return;
    const was = fresh.outerHTML;
    if (was === element.outerHTML) return;
    const focused = element.contains(document.activeElement) ? document.activeElement : null;
    const place = focused && [...element.querySelectorAll("a, button, summary, [tabindex]")].indexOf(focused);
    keepOpen(element, fresh);
    const node = document.adoptNode(fresh);
    element.replaceWith(node);
    node.dataset.was = was;
    ownTimes(node);
    ownCells(node);
    if (focused) (node.querySelectorAll("a, button, summary, [tabindex]")[place] ?? document.getElementById("main")).focus({ preventScroll: true });
  }

  function patch(id, html) {
    const element = document.getElementById(id);
    if (!element) return;
    if (busy(element)) held.set(id, html);
    else { held.delete(id); put(element, html); }
  }

  // Rows of a list: known ones change in place, gone ones are greyed, new ones are counted and shown on demand.
  function rows({ summary, rows: list }) {
    const words = document.getElementById("list-summary");
    if (words && words.textContent !== summary) words.textContent = summary;
    const seen = new Set(list.map((row) => row.id));
    for (const row of document.querySelectorAll("[data-live-rows] tbody tr[id]")) row.classList.toggle("gone", !seen.has(row.id));
    let fresh = 0;
    for (const row of list) {
      if (document.getElementById(row.id)) patch(row.id, row.html);
      else fresh += 1;
    }
    const news = document.getElementById("list-news");
    if (!news) return;
    news.hidden = !fresh;
    if (fresh && news.dataset.count !== String(fresh)) {
      news.dataset.count = fresh;
      const link = document.createElement("a");
      link.href = location.href;
      link.textContent = `Show ${fresh} new`;
      news.replaceChildren(link);
    }
  }

  setInterval(() => { for (const [id, html] of [...held]) patch(id, html); }, 500);
  document.addEventListener("pointerout", () => { for (const [id, html] of [...held]) patch(id, html); }, { passive: true });

  function open() {
    const source = new EventSource(document.body.dataset.live);
    source.addEventListener("open", () => { lostAt = 0; tell("Live", false); });
    source.addEventListener("patch", (event) => { const { id, html } = JSON.parse(event.data); patch(id, html); });
    source.addEventListener("rows", (event) => rows(JSON.parse(event.data)));
    source.addEventListener("title", (event) => { document.title = JSON.parse(event.data); });
    source.addEventListener("away", () => tell(`The server can't reach its records since ${new Date().toLocaleTimeString()}; what stands here is of that time. It tries again.`, true));
    source.addEventListener("back", () => tell("Live", false));
    source.addEventListener("again", () => { source.close(); open(); });
    source.addEventListener("reset", () => location.reload());
    source.addEventListener("end", () => { source.close(); tell("Nothing will change here any more.", false); });
    source.addEventListener("error", () => {
      lostAt ||= Date.now();
      const since = new Date(lostAt).toLocaleTimeString();
      tell(`Connection lost at ${since}; what stands here is of that time. Trying again.`, true);
      // A browser gives up after some answers (503 among them); a new source does not.
      if (source.readyState === EventSource.CLOSED) setTimeout(open, 2000 + Math.random() * 2000);
    });
  }
  open();
})();
