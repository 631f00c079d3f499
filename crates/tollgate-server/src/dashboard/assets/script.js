// Keeps a page true while it is looked at, and gives it keys. Without this script every page works, only not by itself.
"use strict";

(() => {
  const live = document.getElementById("live");
  let stream = null;
  let seen = document.body.dataset.seen;

  // Follows what happens, while somebody can see it: a browser allows few streams, and a hidden page needs none.
  function follow() {
    if (stream || document.hidden) return;
    const page = location.pathname + location.search;
    stream = new EventSource(`/events?page=${encodeURIComponent(page)}&seen=${seen}`);
    stream.addEventListener("parts", (event) => {
      seen = event.lastEventId;
      exchange(event.data);
    });
    stream.addEventListener("open", () => say("live", "on"));
    stream.addEventListener("error", () => {
      say("reconnecting", "off");
      // The browser tries again by itself, unless it was told to go away.
      if (stream && stream.readyState === EventSource.CLOSED) {
        stop();
        setTimeout(follow, 3000);
      }
    });
  }

  function stop() {
    if (stream) stream.close();
    stream = null;
  }

  function say(words, state) {
    live.textContent = words;
    live.className = state;
  }

  function exchange(html) {
    const fresh = new DOMParser().parseFromString(html, "text/html");
    for (const id of ["nav", "main", "news"]) {
      const now = document.getElementById(id);
      const next = fresh.getElementById(id);
      if (now && next) morph(now, next);
    }
    document.title = document.getElementById("main").dataset.title;
    tell();
    filter();
  }

  // Makes `now` like `next`, keeping every element that is in both: so focus, selection and scrolling stay.
  function morph(now, next) {
    if (now.dataset && now.dataset.hold && now.dataset.hold !== next.dataset.hold) return held(now);
    for (const { name } of [...now.attributes]) {
      // Whether details are open is the reader's business.
      if (!next.hasAttribute(name) && name !== "open") now.removeAttribute(name);
    }
    for (const { name, value } of next.attributes) {
      if (now.getAttribute(name) !== value) now.setAttribute(name, value);
    }
    // What somebody is typing is theirs.
    if (now.matches("textarea")) return;
    if (now.matches("input:not([type=hidden])") || now.matches("select")) return;
    children(now, next);
  }

  const key = (node) => (node.nodeType === 1 ? node.id || node.dataset.key || null : null);

  function children(now, next) {
    const known = new Map();
    for (const child of now.children) if (key(child)) known.set(key(child), child);
    let at = now.firstChild;
    for (const wanted of [...next.childNodes]) {
      let found = null;
      if (key(wanted)) found = known.get(key(wanted)) || null;
      else if (at && !key(at) && at.nodeType === wanted.nodeType && at.nodeName === wanted.nodeName) found = at;
      if (found && found.nodeName !== wanted.nodeName) found = null;
      if (!found) {
        now.insertBefore(document.importNode(wanted, true), at);
        continue;
      }
      if (found === at) at = at.nextSibling;
      else now.insertBefore(found, at);
      if (found.nodeType === 1) morph(found, wanted);
      else if (found.nodeValue !== wanted.nodeValue) found.nodeValue = wanted.nodeValue;
    }
    while (at) {
      const after = at.nextSibling;
      if (at.nodeType === 1 && at.dataset.hold) held(at);
      else at.remove();
      at = after;
    }
  }

  // What is being decided is never exchanged under somebody's hand: they are told, and ask for the new one themselves.
  function held(sheet) {
    const notice = sheet.querySelector(".changed");
    if (!notice || !notice.hidden) return;
    notice.hidden = false;
    for (const button of sheet.querySelectorAll(".decision button")) button.disabled = true;
  }

  // Ages grow by themselves. The same rule as in `text.rs`.
  function age(seconds) {
    if (seconds < 5) return "now";
    if (seconds < 60) return `${seconds} s`;
    if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
    if (seconds < 86400) return `${Math.floor(seconds / 3600)} h`;
    return `${Math.floor(seconds / 86400)} d`;
  }

  function tell() {
    for (const time of document.querySelectorAll("time[datetime]")) {
      let words = age(Math.floor((Date.now() - Date.parse(time.dateTime)) / 1000));
      if ("ago" in time.dataset) words = words === "now" ? "just now" : `${words} ago`;
      if (time.textContent !== words) time.textContent = words;
    }
  }

  const field = () => document.getElementById("filter");

  // The queue is short enough to be filtered here.
  function filter() {
    const queue = document.querySelector("ol.queue");
    if (!queue) return;
    field().hidden = false;
    const wanted = field().value.toLowerCase();
    for (const item of queue.children) item.hidden = !item.textContent.toLowerCase().includes(wanted);
  }

  function move(step) {
    const tasks = [...document.querySelectorAll("a.task")].filter((task) => task.offsetParent);
    if (!tasks.length) return;
    let at = tasks.indexOf(document.activeElement);
    if (at < 0) at = tasks.findIndex((task) => task.hasAttribute("aria-current"));
    const next = at < 0 ? (step > 0 ? 0 : tasks.length - 1) : Math.min(Math.max(at + step, 0), tasks.length - 1);
    tasks[next].focus();
  }

  function unfold(id) {
    const summary = document.getElementById(id);
    if (!summary || document.querySelector(".changed:not([hidden])")) return;
    summary.parentElement.open = true;
    summary.parentElement.querySelector("input:not([type=hidden]), textarea").focus();
  }

  const keys = document.getElementById("keys");
  const actions = {
    j: () => move(1),
    k: () => move(-1),
    a: () => document.getElementById("approve")?.click(),
    r: () => unfold("reject"),
    e: () => unfold("edit"),
    "/": () => field()?.focus(),
    "?": () => keys.showModal(),
  };

  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, textarea, select");
    if (typing && event.key === "Escape") typing.blur();
    // A key that is held down decides nothing.
    if (typing || keys.open || event.repeat || event.ctrlKey || event.altKey || event.metaKey) return;
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });

  document.addEventListener("input", (event) => {
    if (event.target === field() && document.querySelector("ol.queue")) filter();
  });

  // One decision for one press: a second click must not meet another page.
  document.addEventListener("submit", (event) => {
    if (event.target.method !== "post") return;
    for (const button of document.querySelectorAll(".decision button")) setTimeout(() => (button.disabled = true));
  });

  document.addEventListener("visibilitychange", () => (document.hidden ? stop() : (follow(), tell())));
  addEventListener("pagehide", stop);
  addEventListener("pageshow", (event) => {
    // Back from another page: the old one is shown again as it was, with buttons that were pressed.
    if (event.persisted) location.reload();
  });

  const button = document.getElementById("show-keys");
  button.hidden = false;
  button.addEventListener("click", () => keys.showModal());
  document.querySelector("a[data-next]")?.focus();
  setInterval(() => document.hidden || tell(), 10000);
  filter();
  follow();
})();
