// Keeps an open page up to date, and sends forms without leaving the place where the person is.
//
// The server says that something changed; the page is fetched again, and each region that is marked with data-live and
// has changed is put in place of the old one. A region in which somebody types, selects, or points at a button waits
// until they are done.
"use strict";
(() => {
  const link = document.getElementById("link");
  const toast = document.getElementById("told");
  let source, timer, pending = false, fetching = false, again = false;

  const say = (text) => { if (link.textContent !== text) link.textContent = text; };
  const tell = (text) => {
    toast.textContent = text;
    clearTimeout(timer);
    timer = setTimeout(() => { toast.textContent = ""; }, 8000);
  };

  // Whether a form in the region has something in it that was not sent.
  const isTyped = (region) => [...region.querySelectorAll("input, textarea, select")].some((field) => {
    if (field.type === "hidden") return false;
    if (field.type === "radio" || field.type === "checkbox") return field.checked !== field.defaultChecked;
    if (field.tagName === "SELECT") return [...field.options].some((it) => it.selected !== it.defaultSelected);
    return field.value !== field.defaultValue;
  });
  const isEditing = (region) => {
    const active = document.activeElement;
    return region.contains(active) && active.matches("input, textarea, select");
  };
  const isPointedAt = (region) => region.querySelector("button:hover, summary:hover, a:hover") !== null;
  const isSelected = (region) => {
    const selection = getSelection();
    return selection && !selection.isCollapsed && region.contains(selection.anchorNode);
  };
  const isBusy = (region) => isTyped(region) || isEditing(region) || isPointedAt(region) || isSelected(region);

  // The place of the keyboard in a region, so that it is found again in the new one.
  const name = (it) => it.getAttribute("href") || it.getAttribute("aria-label") || it.textContent;
  const reachable = (region) => [...region.querySelectorAll("a, button, summary")];
  const place = (region) => {
    const at = reachable(region).indexOf(document.activeElement);
    return at < 0 ? null : { at, name: name(document.activeElement) };
  };
  const restore = (region, was) => {
    const all = reachable(region);
    const next = all.find((it) => name(it) === was.name) || all[Math.min(was.at, all.length - 1)];
    (next || document.getElementById("main")).focus({ preventScroll: true });
  };

  const put = (old, fresh, isAsked) => {
    const open = new Set([...old.querySelectorAll("details[open][id]")].map((it) => it.id));
    for (const it of fresh.querySelectorAll("details[id]")) if (open.has(it.id)) it.open = true;
    if (old.innerHTML === fresh.innerHTML) return true;
    if (isTyped(old) || (!isAsked && isBusy(old))) return false;
    const was = place(old);
    old.replaceChildren(...fresh.childNodes);
    if (was) restore(old, was);
    return true;
  };

  const heading = (page) => page.querySelector("h1")?.textContent;

  // Puts in what is new. `isAsked` says that the person has just changed it, so nothing waits but what they type.
  const apply = (html, isAsked) => {
    const fresh = new DOMParser().parseFromString(html, "text/html");
    // The first view becomes another one with the first conversation.
    if (heading(fresh) !== heading(document) && !isTyped(document)) { location.reload(); return fresh; }
    pending = false;
    for (const old of document.querySelectorAll("[data-live]")) {
      const it = fresh.getElementById(old.id);
      if (it && !put(old, it, isAsked)) pending = true;
    }
    say(pending ? "News waits until you are done here" : "Updates live");
    return fresh;
  };

  const refresh = async () => {
    if (fetching) { again = true; return; }
    fetching = true;
    try {
      const answer = await fetch(location.href);
      if (answer.status === 401) { say("Signed out: run metaclaw ui"); source.close(); return; }
      if (answer.ok) apply(await answer.text(), false);
    } catch {
      say("Not connected");
    } finally {
      fetching = false;
      if (again) { again = false; refresh(); }
    }
  };

  // A form that leads back here is sent in the background.
  document.addEventListener("submit", async (event) => {
    const form = event.target;
    const back = form.elements.namedItem("back");
    if (!back || back.value.split("#")[0] !== location.pathname + location.search) return;
    event.preventDefault();
    const button = event.submitter;
    if (button) button.disabled = true;
    try {
      const answer = await fetch(form.action, { method: "POST", body: new URLSearchParams(new FormData(form)) });
      if (answer.status === 401) { location.reload(); return; }
      const html = await answer.text();
      if (answer.ok) {
        form.reset();
        if (button) button.disabled = false;
        if (button) button.focus({ preventScroll: true });
        const done = apply(html, true).getElementById("done");
        tell(done ? done.textContent : "Done");
      } else {
        const why = new DOMParser().parseFromString(html, "text/html").querySelector(".lead");
        tell(`Not done: ${why ? why.textContent : answer.status}`);
      }
    } catch {
      tell("Not done: MetaClaw does not answer");
    } finally {
      if (button) button.disabled = false;
    }
  });

  // A drawing tells one point at a time: the one under the mouse, or by the arrow keys.
  document.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const drawing = step && event.target.closest(".curve > svg");
    if (!drawing) return;
    event.preventDefault();
    const points = [...drawing.querySelectorAll(".point")];
    const at = points.findIndex((it) => it.classList.contains("shown"));
    points[at]?.classList.remove("shown");
    const next = at < 0 && step < 0 ? -1 : at + step;
    points.at(next % points.length)?.classList.add("shown");
  });

  const connect = () => {
    source = new EventSource("/ui/events");
    source.addEventListener("change", refresh);
    source.onopen = () => say("Updates live");
    source.onerror = () => say("Not connected; trying again");
  };

  // A hidden tab holds no connection: browsers allow six for each host.
  document.addEventListener("visibilitychange", () => {
    source?.close();
    if (!document.hidden) connect();
  });
  for (const done of ["pointerout", "focusout", "selectionchange", "input"]) {
    document.addEventListener(done, () => { if (pending) setTimeout(() => pending && refresh(), 150); });
  }
  // Distances in time grow although nothing happens.
  setInterval(() => { if (!document.hidden) refresh(); }, 60000);

  // What the last form did is told once, and is no part of the address.
  const address = new URL(location.href);
  if (address.searchParams.has("done")) {
    address.searchParams.delete("done");
    history.replaceState(null, "", address);
  }
  if (!document.hidden) connect();
})();
