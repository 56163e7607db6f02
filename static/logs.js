// The log viewer: follows, scrolls without end in both directions and keeps at most KEEP rows in the page, however many
// lines a job prints. Output reaches the page through textContent alone.
"use strict";
(() => {
  const KEEP = 4000;
  const PAGE = 1000;
  const box = document.getElementById("log");
  const config = JSON.parse(box.dataset.viewer);
  if (!config.lines) return;
  const pill = document.getElementById("pill");
  const follow = document.getElementById("l-follow");
  const wrap = document.getElementById("l-wrap");
  const timeMode = document.getElementById("l-time");
  const search = document.getElementById("l-search");
  const say = document.getElementById("log-say");
  const ERROR = /^\s*Traceback \(most recent call last\)|^(\w+\.)*\w*(Error|Exception|Exit)\b|\bCUDA error\b|out of memory|NCCL (WARN|ERROR)|Segmentation fault|core dumped|panicked at/;
  let unseen = 0;
  let detached = Boolean(config.newer);
  let atTop = !config.older;
  let busy = false;
  let queue = [];
  let drawing = false;
  let own = 0;

  // Looks of a terminal become classes; a background is dropped, since text on it might not be readable.
  function nearest(r, g, b) {
    const top = Math.max(r, g, b);
    if (top - Math.min(r, g, b) < 32) return 7;
    const bit = (part) => (part * 3 > top * 2 ? 1 : 0);
    return bit(r) | (bit(g) << 1) | (bit(b) << 2);
  }
  function indexed(n) {
    if (n < 16) return n;
    if (n >= 232) return 7;
    const level = (part) => (part === 0 ? 0 : 55 + 40 * part);
    return nearest(level(Math.floor((n - 16) / 36)), level(Math.floor((n - 16) / 6) % 6), level((n - 16) % 6));
  }
  function apply(look, codes) {
    const list = codes.split(/[;:]/).map((code) => (code === "" ? 0 : Number(code)));
    while (list.length) {
      const code = list.shift();
      if (code === 0) for (const key of Object.keys(look)) delete look[key];
      else if (code === 1) look.ab = true;
      else if (code === 2) look.ad = true;
      else if (code === 3) look.ai = true;
      else if (code === 4) look.au = true;
      else if (code === 7) look.av = true;
      else if (code === 22) { delete look.ab; delete look.ad; }
      else if (code === 23) delete look.ai;
      else if (code === 24) delete look.au;
      else if (code === 27) delete look.av;
      else if (code >= 30 && code <= 37) look.color = code - 30;
      else if (code === 39) delete look.color;
      else if (code >= 90 && code <= 97) look.color = code - 82;
      else if (code === 38 || code === 48) {
        const kind = list.shift();
        const byte = () => Math.min(255, list.shift() ?? 0);
        const color = kind === 5 ? indexed(byte()) : kind === 2 ? nearest(byte(), byte(), byte()) : null;
        if (color === null) return;
        if (code === 38) look.color = color;
      }
    }
  }
  const SEQUENCE = /\x1b(?:\[([0-?]*[ -/]*)([@-~])|\[[^]*$|\][^]*?(?:\x07|\x1b\\|$)|[\x00-\x7f]|)/g;
  const visible = (text) => text.replace(/[\x00-\x08\x0a-\x1f\x7f]/g, (c) => String.fromCharCode(c === "\x7f" ? 0x2421 : 0x2400 + c.charCodeAt(0)))
    .replace(/[\x80-\x9f\u202a-\u202e\u2066-\u2069]/g, "\ufffd");
  function fill(code, text) {
    text = text.replace(/[\r\n]+$/, "");
    text = text.slice(text.lastIndexOf("\r") + 1);
    const look = {};
    let from = 0;
    const add = (part) => {
      if (!part) return;
      const classes = Object.keys(look).map((key) => (key === "color" ? `a${look.color}` : key)).join(" ");
      if (!classes) return code.append(visible(part));
      const span = document.createElement("span");
      span.className = classes;
      span.textContent = visible(part);
      code.append(span);
    };
    if (text.includes("\x1b")) {
      for (const found of text.matchAll(SEQUENCE)) {
        add(text.slice(from, found.index));
        if (found[2] === "m") apply(look, found[1]);
        from = found.index + found[0].length;
      }
    }
    add(text.slice(from));
  }

  function clock(at) {
    if (timeMode.value === "local") return new Date(at).toTimeString().slice(0, 8) + at.slice(19, 23);
    if (timeMode.value !== "start") return at.slice(11, 23);
    const since = Math.max(0, Date.parse(at) - config.start) / 1000;
    const part = (n) => String(Math.floor(n)).padStart(2, "0");
    return `${part(since / 3600)}:${part((since / 60) % 60)}:${(since % 60).toFixed(3).padStart(6, "0")}`;
  }
  const anchor = (line) => `${line.role}-${line.index}.${line.stream}.${line.line}`;

  function draw(line) {
    if (line.kind === "gap") {
      const gap = document.createElement("p");
      gap.className = "gap";
      gap.textContent = line.text;
      gap.dataset.key = `gap.${line.role}-${line.index}.${line.stream}.${line.offset}`;
      gap.dataset.at = line.at;
      return gap;
    }
    const row = document.createElement("div");
    const id = anchor(line);
    row.className = "l";
    row.id = id;
    if (line.stream === "stderr") row.classList.add("s");
    if (ERROR.test(line.text)) row.classList.add("e");
    const number = document.createElement("a");
    number.className = "n";
    number.href = config.only ? `${config.only.context}&at=${id}#${id}` : `#${id}`;
    number.dataset.n = line.line;
    number.setAttribute("aria-label", `Line ${line.line} of ${line.role}-${line.index}${line.stream === "stderr" ? ", standard error" : ""}`);
    const time = document.createElement("time");
    time.dateTime = line.at;
    time.title = line.at;
    time.textContent = clock(line.at);
    const rank = document.createElement("b");
    rank.className = `rank r${line.rank % 12}`;
    rank.textContent = `${line.role}-${line.index}`;
    const code = document.createElement("code");
    fill(code, line.text + (line.missing ? ` … ${line.missing.toLocaleString("en")} bytes more` : ""));
    row.append(number, time, rank, code);
    highlight(code);
    return row;
  }

  function highlight(code) {
    const wanted = search.value;
    if (!wanted || wanted.length < 2 || document.querySelector("#logbar [name=regex]").checked) return;
    const lower = wanted.toLowerCase();
    const walker = document.createTreeWalker(code, NodeFilter.SHOW_TEXT);
    const texts = [];
    while (walker.nextNode()) texts.push(walker.currentNode);
    for (const node of texts) {
      let at = node.data.toLowerCase().lastIndexOf(lower);
      while (at >= 0) {
        const hit = node.splitText(at);
        hit.splitText(wanted.length);
        const mark = document.createElement("mark");
        mark.textContent = hit.data;
        hit.replaceWith(mark);
        at = at === 0 ? -1 : node.data.toLowerCase().lastIndexOf(lower, at - 1);
      }
    }
  }

  const rows = () => box.children;
  const atEnd = () => box.scrollHeight - box.scrollTop - box.clientHeight < 40;
  function toEnd() { own += 1; box.scrollTop = box.scrollHeight; }
  function center(row) { own += 1; box.scrollTop = row.offsetTop - box.clientHeight / 2; }
  function known(line) {
    return line.kind === "gap"
      ? box.querySelector(`[data-key="${CSS.escape(`gap.${line.role}-${line.index}.${line.stream}.${line.offset}`)}"]`)
      : document.getElementById(anchor(line));
  }
  function marks() {
    let strip = document.getElementById("ticks");
    const errors = [...box.querySelectorAll(".l.e")].slice(-200);
    if (!strip) { strip = document.createElement("div"); strip.id = "ticks"; strip.className = "ticks"; strip.setAttribute("aria-hidden", "true"); box.after(strip); }
    const area = box.getBoundingClientRect();
    strip.style.top = `${area.top + scrollY}px`;
    strip.style.height = `${area.height}px`;
    strip.replaceChildren(...errors.map((row) => {
      const tick = document.createElement("i");
      tick.style.top = `${(row.offsetTop / box.scrollHeight) * 100}%`;
      return tick;
    }));
  }
  let marking = 0;
  function markSoon() { clearTimeout(marking); marking = setTimeout(marks, 250); }

  // Puts lines behind the last row. A line without an end comes again under its number and takes its place.
  function append(lines) {
    document.getElementById("log-none")?.remove();
    const batch = document.createDocumentFragment();
    const inBatch = new Map();
    for (const line of lines) {
      const id = line.kind === "gap" ? null : anchor(line);
      const old = id && (inBatch.get(id) ?? known(line));
      const row = draw(line);
      if (old) old.replaceWith(row);
      else if (!id && known(line)) continue;
      else batch.append(row);
      if (id) inBatch.set(id, row);
    }
    box.append(batch);
  }
  function trimTop() {
    let extra = rows().length - KEEP;
    if (extra <= 0) return;
    const before = box.scrollHeight;
    while (extra-- > 0) rows()[0].remove();
    atTop = false;
    if (!follow.checked) { own += 1; box.scrollTop -= before - box.scrollHeight; }
  }
  function trimEnd() {
    while (rows().length > KEEP) { box.lastElementChild.remove(); detached = true; }
  }

  // Where only what a search finds is shown, new lines are sifted as the stored ones were.
  const sieve = !config.only ? null : (() => {
    if (!config.only.regex) { const text = config.only.text.toLowerCase(); return (line) => line.toLowerCase().includes(text); }
    try { const pattern = new RegExp(config.only.text); return (line) => pattern.test(line); }
    catch { tell("This expression can't be followed here: new lines are found by Show."); return () => false; }
  })();
  const wanted = (line) => !sieve || line.kind === "gap" || sieve(line.text.replace(SEQUENCE, ""));

  function flush() {
    drawing = false;
    let lines = queue.filter(wanted);
    queue = [];
    if (!lines.length) return;
    if (follow.checked && !detached) {
      if (lines.length > KEEP) lines = lines.slice(-KEEP);
      append(lines);
      trimTop();
      toEnd();
    } else {
      unseen += lines.filter((line) => !line.partial && !known(line)).length;
      if (!detached && rows().length + lines.length <= KEEP) append(lines);
      else detached = true;
    }
    showPill();
    markSoon();
  }
  function showPill() {
    const show = !follow.checked && (unseen > 0 || detached);
    pill.hidden = !show;
    if (show && !config.live) pill.textContent = "Jump to the end";
    else if (show) pill.textContent = unseen ? `Jump to live (${unseen.toLocaleString("en")} new)` : "Jump to live";
  }

  async function load(parameters) {
    const url = new URL(config.lines, location.href);
    for (const [name, value] of Object.entries(parameters)) url.searchParams.set(name, value);
    const answer = await fetch(url, { headers: { accept: "application/json" } });
    if (!answer.ok) throw new Error(`the server said ${answer.status}`);
    return answer.json();
  }
  // Of a rank of mpirun that speaks rarely, a page may have next to no lines and tell where to look further. Forwards that
  // is done until there are some; backwards a person is asked after a few pages.
  const FURTHER = 8;
  async function get(parameters) {
    let page = await load(parameters);
    let items = page.items;
    for (let turn = 1; items.length < 2; turn += 1) {
      if (parameters.tail && page.looked_since && turn < FURTHER) {
        page = await load({ ...parameters, until: page.looked_since });
        items = page.items.concat(items);
      } else if (!parameters.tail && page.more) {
        page = await load({ limit: parameters.limit, cursor: page.next });
        items = items.concat(page.items);
      } else break;
    }
    // A page may end before it has as many lines as were asked for.
    return Object.assign(items.filter(wanted), { all: !(parameters.tail ? page.older : page.more), since: page.looked_since });
  }
  const rowAt = (row) => row?.dataset.at ?? row?.querySelector("time")?.dateTime;

  // A page of lines ends at a moment, and a moment may hold many lines of which some are on the page: what is new
  // stands before the first row (or behind the last one), and more is asked for until that row is met.
  const FEW_THEN_MANY = [PAGE, 20 * PAGE];
  const keyOf = (line) => (line.kind === "gap" ? `gap.${line.role}-${line.index}.${line.stream}.${line.offset}` : anchor(line));
  const keyOfRow = (row) => row.id || row.dataset.key;
  async function beyond(row, ask, beside, side) {
    const at = rowAt(row);
    for (const count of FEW_THEN_MANY) {
      const lines = await get(ask(at, count));
      const met = lines.findIndex((line) => keyOf(line) === keyOfRow(row));
      const fresh = met >= 0 ? side(lines, met) : lines.filter((line) => beside(line.at, at));
      if (fresh.length || lines.all) return { fresh, all: lines.all };
      if (lines.since) {
        const gap = { kind: "gap", role: "", index: 0, stream: "", offset: lines.since, at: lines.since, text: "None of these lines was found since then; scroll up to look further back." };
        return { fresh: [gap], all: false };
      }
    }
    // One moment holds more lines than are read at once: the rest of it is left out, and said so.
    const lines = await get(ask(at, PAGE, true));
    const gap = { kind: "gap", role: "", index: 0, stream: "", offset: at, at, text: "More lines were stored in this moment than are shown here; choose one replica to read all of its lines." };
    return { fresh: beside("0", "1") ? [...lines, gap] : [gap, ...lines], all: lines.all };
  }
  async function older() {
    const first = rows()[0];
    if (busy || atTop || !rowAt(first)) return;
    busy = true;
    try {
      const ask = (at, count, strictly) => ({ tail: count, limit: count, until: new Date(Date.parse(at) + (strictly ? 0 : 1)).toISOString() });
      const { fresh, all } = await beyond(first, ask, (line, at) => line < at, (lines, met) => lines.slice(0, met));
      atTop = all && !fresh.length;
      const batch = document.createDocumentFragment();
      for (const line of fresh.slice(-KEEP / 2)) batch.append(draw(line));
      const before = box.scrollHeight;
      box.prepend(batch);
      own += 1;
      box.scrollTop += box.scrollHeight - before;
      trimEnd();
      showPill();
      markSoon();
    } catch (error) { tell(`Older lines can't be read: ${error.message}`); }
    busy = false;
  }
  async function newer() {
    const last = box.lastElementChild;
    if (busy || !detached || !rowAt(last)) return;
    busy = true;
    try {
      const ask = (at, count, strictly) => ({ limit: count, since: new Date(Date.parse(at) + (strictly ? 1 : 0)).toISOString() });
      const { fresh, all } = await beyond(last, ask, (line, at) => line > at, (lines, met) => lines.slice(met + 1));
      const next = fresh.slice(0, KEEP / 2);
      if (all && next.length === fresh.length) detached = false;
      append(next);
      trimTop();
      markSoon();
    } catch (error) { tell(`Newer lines can't be read: ${error.message}`); }
    busy = false;
  }
  async function jump() {
    follow.checked = true;
    unseen = 0;
    pill.hidden = true;
    if (detached) {
      try {
        const lines = await get({ tail: PAGE, limit: PAGE });
        box.replaceChildren();
        detached = false;
        atTop = false;
        append(lines);
      } catch (error) { tell(`The newest lines can't be read: ${error.message}`); }
    }
    toEnd();
    markSoon();
  }
  function tell(text) { say.textContent = text; say.classList.remove("sr"); }

  box.addEventListener("scroll", () => {
    if (own > 0) { own -= 1; return; }
    if (box.scrollTop < 400) older();
    if (atEnd()) {
      if (detached) newer();
      else if (!follow.checked && config.live) { follow.checked = true; unseen = 0; showPill(); }
    } else if (follow.checked) { follow.checked = false; showPill(); }
  }, { passive: true });
  pill.addEventListener("click", jump);
  follow.addEventListener("change", () => { if (follow.checked) jump(); else showPill(); });
  wrap.checked = (localStorage.getItem("wrap") ?? "yes") === "yes";
  const wrapped = () => box.classList.toggle("nowrap", !wrap.checked);
  wrap.addEventListener("change", () => { localStorage.setItem("wrap", wrap.checked ? "yes" : "no"); wrapped(); });
  wrapped();
  const retime = () => {
    box.classList.remove("time-clock", "time-start", "time-off", "time-local");
    box.classList.add(`time-${timeMode.value}`);
    for (const time of box.querySelectorAll("time")) time.textContent = clock(time.dateTime);
  };
  // The server does not know the reader's zone, so its clock is added here.
  if (!isUtc(new Date())) {
    const own = new Option(`clock, ${ownZone(new Date())}`, "local");
    timeMode.options[0].after(own);
    if (new URLSearchParams(location.search).get("time") === "local") { own.selected = true; retime(); }
  }
  timeMode.addEventListener("change", retime);
  for (const select of document.querySelectorAll("#l-attempt, #l-replica, #l-rank")) select.addEventListener("change", () => select.form.requestSubmit());
  document.getElementById("older")?.parentElement.remove();
  document.getElementById("newer")?.parentElement.remove();

  // Lines that are chosen stand in the address: a click on a number takes one, a click with Shift up to there.
  const bar = document.getElementById("chosen");
  let pivot = box.querySelector(".l.at");
  function choose(from, to) {
    const all = [...rows()];
    const ends = [all.indexOf(from), all.indexOf(to)].sort((a, b) => a - b);
    const lines = all.slice(ends[0], ends[1] + 1).filter((row) => row.id);
    for (const old of box.querySelectorAll(".at")) old.classList.remove("at");
    for (const row of lines) row.classList.add("at");
    const address = new URL(location.href);
    for (const name of ["before", "since", "none", "to"]) address.searchParams.delete(name);
    address.searchParams.set("attempt", config.attempt);
    address.searchParams.set("at", lines[0].id);
    if (lines.length > 1) address.searchParams.set("to", lines.at(-1).id);
    address.hash = lines[0].id;
    history.replaceState(null, "", address);
    follow.checked = false;
    showPill();
    told();
  }
  function told() {
    const lines = box.querySelectorAll(".l.at");
    bar.hidden = !lines.length;
    const name = (row) => `${row.querySelector("a.n").getAttribute("aria-label").replace("Line", "line")}`;
    const words = lines.length > 1 ? `${lines.length.toLocaleString("en")} lines, from ${name(lines[0])} to ${name(lines[lines.length - 1])}` : lines.length ? `${name(lines[0])}; a click on another number with Shift takes all between` : "";
    document.getElementById("chosen-words").textContent = words;
  }
  box.addEventListener("click", (event) => {
    const number = event.target.closest?.("a.n");
    if (!number || config.only || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const row = number.closest(".l");
    if (!event.shiftKey || !pivot?.isConnected) pivot = row;
    choose(pivot, row);
  });
  // Shift would select text on the way.
  box.addEventListener("mousedown", (event) => { if (event.shiftKey && event.target.closest?.("a.n")) event.preventDefault(); });
  const copy = (text) => navigator.clipboard?.writeText(text).then(() => { document.getElementById("chosen-words").textContent = "Copied."; setTimeout(told, 1500); }, (error) => tell(`It can't be copied: ${error.message}`));
  for (const id of ["chosen-copy", "chosen-link"]) document.getElementById(id).hidden = !navigator.clipboard;
  document.getElementById("chosen-copy").addEventListener("click", () => copy([...box.querySelectorAll(".l.at code")].map((code) => code.textContent).join("\n")));
  document.getElementById("chosen-link").addEventListener("click", () => copy(location.href));
  document.getElementById("chosen-none").addEventListener("click", () => {
    for (const old of box.querySelectorAll(".at")) old.classList.remove("at");
    const address = new URL(location.href);
    for (const name of ["at", "to"]) address.searchParams.delete(name);
    address.hash = "";
    history.replaceState(null, "", address);
    pivot = null;
    told();
  });
  told();

  // Hits of a search: those on the page are scrolled to, others open their place.
  const hits = [...document.querySelectorAll("#found a[data-hit]")];
  let hit = -1;
  function goTo(link, event) {
    const row = document.getElementById(link.dataset.hit);
    if (!row) return;
    event?.preventDefault();
    follow.checked = false;
    for (const old of box.querySelectorAll(".at")) old.classList.remove("at");
    row.classList.add("at");
    center(row);
    history.replaceState(null, "", `#${link.dataset.hit}`);
    showPill();
  }
  function stepHit(by) {
    if (!hits.length) return;
    hit = (hit + by + hits.length) % hits.length;
    hits[hit].focus();
    document.getElementById("hit-at").textContent = `${hit + 1} of ${hits.length}`;
    if (document.getElementById(hits[hit].dataset.hit)) goTo(hits[hit]); else location.href = hits[hit].href;
  }
  hits.forEach((link, index) => link.addEventListener("click", (event) => { hit = index; goTo(link, event); }));
  document.getElementById("hit-next")?.addEventListener("click", () => stepHit(1));
  document.getElementById("hit-prev")?.addEventListener("click", () => stepHit(-1));

  for (const code of box.querySelectorAll(".l code")) highlight(code);
  const target = (location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)))) || pivot;
  // An old link may name a line that is not on this page: its place is opened.
  if (!target && /^#[\w-]+\.std(out|err)\.\d+$/.test(location.hash) && !new URLSearchParams(location.search).has("at")) {
    const address = new URL(location.href);
    address.searchParams.set("at", location.hash.slice(1));
    return location.replace(address);
  }
  if (target && !pivot) { target.classList.add("at"); pivot = target; told(); }
  if (target) { follow.checked = false; center(target); scrollTo(0, 0); }
  else if (follow.checked) toEnd();
  markSoon();
  showPill();
  window.addEventListener("resize", markSoon);

  if (config.live) {
    const open = () => {
      const source = new EventSource(config.live);
      source.addEventListener("lines", (event) => {
        for (const line of event.data.split("\n")) if (line) queue.push(JSON.parse(line));
        if (event.lastEventId) config.live = config.resume + encodeURIComponent(event.lastEventId);
        if (queue.length > 2 * KEEP) queue = queue.slice(-KEEP);
        if (!drawing) { drawing = true; (document.hidden ? (f) => setTimeout(f, 250) : requestAnimationFrame)(flush); }
      });
      source.addEventListener("skipped", (event) => {
        const { bytes } = JSON.parse(event.data);
        queue.push({ kind: "gap", role: "", index: 0, stream: "", offset: performance.now(), at: new Date().toISOString(),
          text: `${bytes.toLocaleString("en")} bytes were printed faster than this page could show them; scroll up to read them.` });
      });
      source.addEventListener("end", async () => {
        source.close();
        say.textContent = "The output is complete.";
        const page = await fetch(location.href).then((answer) => answer.text()).catch(() => "");
        const state = new DOMParser().parseFromString(page, "text/html").getElementById("log-state");
        if (state) document.getElementById("log-state").replaceWith(document.adoptNode(state));
      });
      source.addEventListener("again", () => { source.close(); open(); });
      source.addEventListener("failed", () => { source.close(); setTimeout(open, 2000); });
      source.addEventListener("open", () => { say.classList.add("sr"); say.textContent = ""; });
      source.addEventListener("error", () => {
        tell("The connection was lost. It is tried again; no line is left out.");
        if (source.readyState === EventSource.CLOSED) setTimeout(open, 2000 + Math.random() * 2000);
      });
    };
    open();
  }
})();
