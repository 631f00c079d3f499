// Keeps a visible page up to date, and handles keys. Without this script every page works, but does not update itself.
"use strict";

(() => {
  const live = document.getElementById("live");
  let stream = null;
  let seen = document.body.dataset.seen;

  // Opens the event stream while the page is visible. Browsers allow few streams, and a hidden page needs none, unless the
  // person wants to be notified.
  function follow() {
    if (stream || (document.hidden && !isNotifying()) || "still" in document.body.dataset) return;
    const page = location.pathname + location.search;
    stream = new EventSource(`/events?page=${encodeURIComponent(page)}&seen=${seen}`);
    stream.addEventListener("parts", (event) => {
      seen = event.lastEventId;
      replace(event.data);
    });
    stream.addEventListener("open", () => say("live", "on"));
    stream.addEventListener("error", () => {
      say("reconnecting", "off");
      // The browser reconnects by itself unless the server closed the stream for good.
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

  function replace(html) {
    const fresh = new DOMParser().parseFromString(html, "text/html");
    for (const id of ["nav", "banner", "main", "news"]) {
      const now = document.getElementById(id);
      const next = fresh.getElementById(id);
      if (now && next) morph(now, next);
    }
    document.title = document.getElementById("main").dataset.title;
    updateAges();
    filter();
    notify();
  }

  // Changes `now` into `next` and keeps every element that is in both, so that focus, selection and scrolling stay.
  function morph(now, next) {
    if (now.dataset && now.dataset.hold && now.dataset.hold !== next.dataset.hold) return held(now);
    for (const { name } of [...now.attributes]) {
      // The reader decides which details are open.
      if (!next.hasAttribute(name) && name !== "open") now.removeAttribute(name);
    }
    for (const { name, value } of next.attributes) {
      if (now.getAttribute(name) !== value) now.setAttribute(name, value);
    }
    // Never change what somebody is typing.
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
        const added = document.importNode(wanted, true);
        // What arrives on an open page is highlighted for a moment.
        if (added.nodeName === "LI") added.classList.add("fresh");
        now.insertBefore(added, at);
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

  // A task that waits for a decision is never replaced on the open page. A notice offers the new version instead.
  function held(sheet) {
    const notice = sheet.querySelector(".changed");
    if (!notice || !notice.hidden) return;
    notice.hidden = false;
    for (const button of sheet.querySelectorAll(".decision button")) button.disabled = true;
  }

  // The age in words. `text.rs` has the same rule.
  function age(seconds) {
    if (seconds < 5) return "now";
    if (seconds < 60) return `${seconds} s`;
    if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
    if (seconds < 86400) return `${Math.floor(seconds / 3600)} h`;
    return `${Math.floor(seconds / 86400)} d`;
  }

  function updateAges() {
    for (const time of document.querySelectorAll("time[datetime]")) {
      let words = age(Math.floor((Date.now() - Date.parse(time.dateTime)) / 1000));
      if ("ago" in time.dataset) words = words === "now" ? "just now" : `${words} ago`;
      if (time.textContent !== words) time.textContent = words;
    }
  }

  const field = () => document.getElementById("filter");

  // The queue is short enough to filter in the browser.
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
    // In the queue, the task that is highlighted is the one that keys decide about, so it opens.
    if (tasks[next].closest("ol.queue") && !tasks[next].hasAttribute("aria-current")) tasks[next].click();
  }

  // Keys decide only about the task that the person sees: not about one that has just opened by itself after a decision, and
  // not about the open one while another is highlighted, which they open instead.
  function decides(event) {
    if (document.querySelector(".arming") && event.timeStamp < 600) return false;
    const other = document.activeElement.closest("ol.queue a.task:not([aria-current])");
    if (other) other.click();
    return !other;
  }

  function press(id) {
    const button = document.getElementById(id);
    if (button?.offsetParent) button.click();
  }

  function unfold(id) {
    const summary = document.getElementById(id);
    if (!summary?.offsetParent || document.querySelector(".changed:not([hidden])")) return;
    summary.parentElement.open = true;
    summary.parentElement.querySelector("input:not([type=hidden]), textarea").focus();
  }

  const keys = document.getElementById("keys");
  const actions = {
    j: () => move(1),
    k: () => move(-1),
    a: (event) => decides(event) && press("approve"),
    c: (event) => decides(event) && unfold("changes"),
    r: (event) => decides(event) && unfold("reject"),
    e: (event) => decides(event) && unfold("edit"),
    u: () => press("undo"),
    n: () => location.assign("/new"),
    f: () => field()?.focus(),
    "/": () => find.select(),
    "?": () => keys.showModal(),
  };

  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      find.select();
      return;
    }
    const typing = event.target.closest("input, textarea, select");
    if (typing && event.key === "Escape") typing.blur();
    // Ignore repeated events of a key that is held down, so that they decide nothing.
    if (typing || keys.open || event.repeat || event.ctrlKey || event.altKey || event.metaKey) return;
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action(event);
  });

  document.addEventListener("input", (event) => {
    if (event.target === field() && document.querySelector("ol.queue")) filter();
  });

  // "Cancel" also closes the form that it is in.
  document.addEventListener("reset", (event) => {
    const details = event.target.closest("details");
    if (!details) return;
    details.open = false;
    details.querySelector("summary").focus();
  });

  // One press makes one decision: a second click must not hit the next page.
  document.addEventListener("submit", (event) => {
    if (event.target.method !== "post") return;
    for (const button of document.querySelectorAll(":is(.decision, .actions, .deeds, .said, .fields) button")) setTimeout(() => (button.disabled = true));
  });

  // Results appear while somebody types. Enter opens them as a page of their own.
  const find = document.getElementById("find");
  const found = document.getElementById("found");
  let asked = 0;
  async function search() {
    const [question, text] = [++asked, find.value.trim()];
    if (!text) return (found.hidden = true);
    const answer = await fetch(`/search?typing=true&q=${encodeURIComponent(text)}`);
    const results = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector(".results");
    // A later question may have been answered first.
    if (question !== asked || !results) return;
    found.replaceChildren(document.importNode(results, true));
    found.hidden = false;
  }
  let soon = 0;
  find.addEventListener("input", () => {
    clearTimeout(soon);
    soon = setTimeout(search, 120);
  });
  find.form.addEventListener("keydown", (event) => {
    const links = [...found.querySelectorAll("a")];
    if (event.key === "Escape") {
      found.hidden = true;
      find.blur();
    } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && !found.hidden && links.length) {
      event.preventDefault();
      const at = links.indexOf(document.activeElement) + (event.key === "ArrowDown" ? 1 : -1);
      (at < 0 ? find : links[Math.min(at, links.length - 1)]).focus();
    }
  });
  document.addEventListener("focusin", (event) => {
    if (!find.form.contains(event.target)) found.hidden = true;
  });

  // Notifications of new approvals, if the person wants them.
  const bell = document.getElementById("notify");
  const newest = () => Number(document.getElementById("news").dataset.newest || 0);
  let known = newest();
  function isNotifying() {
    return "Notification" in window && Notification.permission === "granted" && localStorage.getItem("notify") === "on";
  }
  function showBell() {
    if (!("Notification" in window)) return;
    const isBlocked = Notification.permission === "denied";
    bell.hidden = false;
    bell.disabled = isBlocked;
    bell.setAttribute("aria-pressed", String(isNotifying()));
    bell.textContent = isBlocked ? "Notifications are blocked by the browser" : isNotifying() ? "Notifications are on" : "Notify me of approvals";
  }
  bell.addEventListener("click", async () => {
    if (isNotifying()) localStorage.setItem("notify", "off");
    else if ((await Notification.requestPermission()) === "granted") localStorage.setItem("notify", "on");
    showBell();
  });
  function notify() {
    const isNew = newest() > known;
    known = newest();
    if (!isNew || !isNotifying()) return;
    // With the same tag, several open pages show one notification.
    const note = new Notification("tollgate", { body: document.getElementById("news").textContent, tag: `tollgate-${known}` });
    note.addEventListener("click", () => {
      window.focus();
      location.assign("/approvals");
    });
  }
  showBell();

  // A tooltip without the browser's delay, for the periods of a plot.
  const tip = Object.assign(document.createElement("div"), { id: "tip", hidden: true });
  tip.setAttribute("role", "tooltip");
  document.body.append(tip);
  document.addEventListener("pointerover", (event) => {
    const period = event.target.closest("rect.hit");
    tip.hidden = !period;
    if (!period) return;
    tip.textContent = period.querySelector("title").textContent;
    const box = period.getBoundingClientRect();
    tip.style.left = `${Math.max(8, Math.min(box.left + box.width / 2 - tip.offsetWidth / 2, innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${box.top - tip.offsetHeight - 6}px`;
  });

  document.addEventListener("visibilitychange", () => {
    if (document.hidden && !isNotifying()) stop();
    else (follow(), updateAges());
  });
  addEventListener("pagehide", stop);
  addEventListener("pageshow", (event) => {
    // The browser's back button restores the old page with its disabled buttons, so load it again.
    if (event.persisted) location.reload();
  });

  const button = document.getElementById("show-keys");
  button.hidden = false;
  button.addEventListener("click", () => keys.showModal());
  setInterval(() => document.hidden || updateAges(), 10000);
  filter();
  follow();
})();
