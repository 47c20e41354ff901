// The page `/ui`: asks for the document every few seconds and shows it. Texts of the cluster are
// only ever set as text, never as markup.
"use strict";

const REFRESH_MILLISECONDS = 5000;
// Without this, a connection that hangs would leave an old state on the page, and say nothing.
const TIMEOUT_MILLISECONDS = 15000;
const FAILED = new Set(["unresponsive", "timed-out", "refused"]);
const FAILED_STEPS = new Set([
  "CheckpointNotSent", "CheckpointUnanswered", "CheckpointTimedOut", "CheckpointRefused",
  "PodEndedWithoutCheckpoint",
]);

const PAST = {
  "not-yet": () => "Steps of earlier leaders are being read.",
  read: (since) => `Steps are known since ${since}: those before this operator led are from Events.`,
  partly: (since) => `Steps are known since ${since}, not all of them: not all Events could be read.`,
  forbidden: (since) => `Steps are known since ${since}: this operator may not list earlier Events.`,
};

const byId = (id) => document.getElementById(id);
const opened = new Set();
let token = "";
let timer = 0;
let shown = null;
let offset = 0; // the server's clock less the browser's [ms]

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined && text !== "") made.textContent = text;
  if (className) made.className = className;
  return made;
}

function cell(text, className) {
  return element("td", text, className);
}

function time(text) {
  const made = element("time", new Date(text).toLocaleTimeString());
  made.dateTime = text;
  made.title = text;
  return made;
}

function duration(milliseconds) {
  const seconds = Math.max(0, Math.round(milliseconds / 1000));
  const minutes = Math.floor(seconds / 60);
  if (minutes >= 60) return `${Math.floor(minutes / 60)}h${String(minutes % 60).padStart(2, "0")}m`;
  return minutes ? `${minutes}m${String(seconds % 60).padStart(2, "0")}s` : `${seconds}s`;
}

function say(text) {
  // A screen reader reads each change aloud: only what is new is written.
  if (byId("status").textContent !== text) byId("status").textContent = text;
}

async function refresh() {
  const response = await fetch("/ui/data", {
    headers: { Authorization: `Bearer ${token}` },
    cache: "no-store",
    credentials: "omit",
    signal: AbortSignal.timeout(TIMEOUT_MILLISECONDS),
  });
  if (!response.ok) {
    const refusal = new Error((await response.text()).trim() || `status ${response.status}`);
    refusal.endsSession = response.status === 401 || response.status === 403;
    throw refusal;
  }
  shown = await response.json();
  offset = Date.parse(shown.now) - Date.now();
}

async function poll() {
  if (token && !byId("paused").checked) {
    try {
      await refresh();
      show();
    } catch (error) {
      if (error.endsSession) return leave(error.message);
      say(`No answer: ${error.message}. The page shows what it knew.`);
    }
  }
  if (token) pollLater();
}

// One timer at most: the button may be pressed twice before the first answer.
function pollLater() {
  clearTimeout(timer);
  timer = setTimeout(poll, REFRESH_MILLISECONDS);
}

function leave(message) {
  token = "";
  byId("content").hidden = true;
  byId("login").hidden = false;
  byId("login-error").textContent = message;
  say("Not connected");
  byId("token").focus();
}

async function enter(event) {
  event.preventDefault();
  byId("login-error").textContent = "";
  token = byId("token").value.trim();
  try {
    await refresh();
  } catch (error) {
    return leave(error.message);
  }
  byId("token").value = "";
  byId("login").hidden = true;
  byId("content").hidden = false;
  show();
  byId("now").focus();
  pollLater();
}

function show() {
  if (!shown.is_leading) {
    say(`This replica (${shown.identity}) does not lead. The leader is ${shown.leader || "not known"}: ` +
      "forward its port instead.");
  } else {
    say(`${shown.victim_count} ${shown.victim_count === 1 ? "victim" : "victims"}, as ${shown.identity} sees them`);
  }
  const stuck = shown.victims.filter((victim) => victim.is_stuck).length;
  byId("summary").replaceChildren(
    figure("Victims", shown.victim_count),
    figure("Stuck", stuck, stuck ? "bad" : ""),
    figure("Oldest waits for its first step", duration(shown.queue_age_seconds * 1000)),
    figure("Pods that wait for their gang", shown.gated_pods),
    figure("Gangs that diverge", shown.diverging_gangs, shown.diverging_gangs ? "soon" : ""),
  );
  const rows = [...shown.victims, ...shown.ended, ...shown.gangs, ...shown.queue];
  fill("namespace", rows.map((row) => row.namespace).filter(Boolean));
  fill("phase", shown.victims.map((victim) => victim.phase));
  refreshRows();
  showDay();
}

function figure(name, value, className) {
  const box = element("div");
  box.append(element("dt", name), element("dd", String(value), className));
  return box;
}

function fill(id, values) {
  const select = byId(id);
  const chosen = select.value;
  const names = [...new Set(values)].sort();
  if (chosen && !names.includes(chosen)) names.push(chosen);
  const wanted = ["", ...names];
  const present = [...select.options].map((option) => option.value);
  if (wanted.join("\n") === present.join("\n")) return;
  select.replaceChildren(...wanted.map((name) => {
    const option = element("option", name || "All");
    option.value = name;
    return option;
  }));
  select.value = chosen;
}

function isProblem(victim) {
  return victim.is_stuck || FAILED.has(victim.outcome) ||
    victim.steps.some((step) => FAILED_STEPS.has(step.reason));
}

function isWanted(victim) {
  return isShown(victim, `${victim.name} ${victim.gang} ${victim.initiator}`, isProblem(victim));
}

// Of gangs and of the queue: what they wait for names pods and gangs, too.
function isWantedRow(row) {
  return isShown(row, `${row.name} ${row.waits_for} ${row.node || ""}`, row.is_problem);
}

function isShown(row, words, needsLook) {
  const text = byId("text").value.trim().toLowerCase();
  return words.toLowerCase().includes(text) &&
    (!byId("namespace").value || row.namespace === byId("namespace").value) &&
    (!byId("problems").checked || needsLook);
}

// What the rows were made from. They are made anew only when that changes, so that a refresh takes
// neither the place of a screen reader nor a selection; else only the bars move.
let rowsKey = "";

function refreshRows() {
  const filters = ["text", "namespace", "phase"].map((id) => byId(id).value);
  const parts = [shown.victims, shown.ended, shown.victim_count, shown.gangs, shown.queue, filters,
    byId("problems").checked, [...opened]];
  const key = JSON.stringify(parts);
  if (key === rowsKey) return document.querySelectorAll("[data-deadline]").forEach(showTimeLeft);
  rowsKey = key;
  showRows();
}

function showRows() {
  const focused = document.activeElement?.dataset?.uid;
  const phase = byId("phase").value;
  const now = shown.victims.filter((victim) => isWanted(victim) && (!phase || victim.phase === phase));
  const ended = phase ? [] : shown.ended.filter(isWanted);
  byId("victims").replaceChildren(...now.flatMap((victim) => rows(victim, currentCells(victim), 6)));
  byId("ended").replaceChildren(...ended.flatMap((victim) => rows(victim, endedCells(victim), 4)));
  const more = shown.victim_count - shown.victims.length;
  byId("now-note").textContent = `${now.length} of ${shown.victim_count} victims are shown.` +
    (more > 0 ? ` ${more} with later deadlines are not in this list.` : "");
  showGangs();
  showQueue();
  // The rows are new: a user of the keyboard stays at the same place.
  if (focused) document.querySelector(`[data-uid="${CSS.escape(focused)}"]`)?.focus();
}

function showGangs() {
  const gangs = shown.gangs.filter(isWantedRow);
  byId("gangs-note").textContent = `${gangs.length} of ${shown.gang_count} gangs are shown: those ` +
    "that wait to start, leave as a unit, or whose pods differ.";
  byId("gangs").replaceChildren(...gangs.map((gang) => plainRow(gang, [
    cell(gang.namespace),
    cell(gang.phase, gang.is_problem ? "bad" : ""),
    cell(gang.waits_for),
    timeCell(gang.until),
    numberCell(gang.pods || null),
    numberCell(gang.minimum),
    numberCell(gang.minimum === null ? null : gang.gated),
    numberCell(gang.bound),
  ])));
}

function showQueue() {
  const queue = shown.queue.filter(isWantedRow);
  byId("queue-note").textContent = `${queue.length} of ${shown.queue_count} are shown: what waits ` +
    "to come back, for room, or for its victims to leave.";
  byId("queue").replaceChildren(...queue.map((row) => plainRow(row, [
    cell(row.namespace),
    cell(row.kind),
    cell(row.waits_for, row.is_problem ? "bad" : ""),
    timeCell(row.until),
    cell(row.node),
  ])));
}

function plainRow(shownRow, cells) {
  const row = element("tr");
  const head = element("th", shownRow.name, "mono");
  head.scope = "row";
  row.append(head, ...cells);
  return row;
}

function timeCell(text) {
  const made = cell();
  if (text) made.append(time(text));
  return made;
}

function numberCell(value) {
  return cell(value === null ? "" : String(value), "number");
}

function rows(victim, cells, columns) {
  const row = element("tr");
  const button = element("button", victim.name, "more mono");
  const id = `steps-${victim.uid}`;
  button.type = "button";
  button.dataset.uid = victim.uid;
  button.setAttribute("aria-expanded", String(opened.has(victim.uid)));
  button.addEventListener("click", () => {
    if (!opened.delete(victim.uid)) opened.add(victim.uid);
    refreshRows();
  });
  const head = element("th");
  head.scope = "row";
  head.append(button);
  row.append(head, ...cells);
  if (!opened.has(victim.uid)) return [row];
  button.setAttribute("aria-controls", id);
  const details = element("tr", "", "steps");
  details.id = id;
  const wide = cell();
  wide.colSpan = columns;
  wide.append(timeline(victim));
  details.append(wide);
  return [row, details];
}

function timeline(victim) {
  const box = element("div");
  const facts = [
    victim.reason && `Reason: ${victim.reason}`,
    victim.cause && `Cause: ${victim.cause}`,
    victim.attempt > 1 && `Asked ${victim.attempt} times`,
  ].filter(Boolean);
  if (facts.length) box.append(element("p", facts.join(". ")));
  if (!victim.steps.length) {
    box.append(element("p", "No step is known. `kubectl get events` may have earlier ones."));
    return box;
  }
  const list = element("ol");
  let before = null;
  for (const step of victim.steps) {
    const item = element("li");
    const name = element("strong", step.reason, FAILED_STEPS.has(step.reason) ? "bad" : "");
    const at = Date.parse(step.at);
    const after = before === null ? "" : ` (after ${duration(at - before)})`;
    item.append(time(step.at), after, " ", name, `: ${step.note}`);
    if (step.is_from_event) item.append(element("span", " (from an Event)", "past"));
    list.append(item);
    before = at;
  }
  if (victim.deadline) {
    const item = element("li");
    item.append(time(victim.deadline), " ", element("strong", "deadline", "soon"));
    list.append(item);
  }
  box.append(list);
  return box;
}

function currentCells(victim) {
  const left = cell();
  if (victim.deadline) {
    const bar = element("progress");
    bar.setAttribute("aria-label", `Time of ${victim.name} that has passed`);
    left.dataset.begun = victim.begun_at;
    left.dataset.deadline = victim.deadline;
    left.append(bar, element("span"));
    showTimeLeft(left);
  }
  const phase = cell(victim.phase, victim.is_stuck ? "bad" : victim.phase === "saved" ? "good" : "");
  if (victim.is_stuck) phase.append(" (stuck)");
  return [cell(victim.namespace), phase, left, cell(victim.gang), cell(victim.initiator)];
}

function showTimeLeft(left) {
  const end = Date.parse(left.dataset.deadline);
  const begun = Date.parse(left.dataset.begun);
  const now = Date.now() + offset;
  const bar = left.querySelector("progress");
  bar.max = Math.max(1, end - begun);
  bar.value = Math.min(bar.max, Math.max(0, now - begun));
  left.querySelector("span").textContent = ` ${duration(end - now)} left`;
}

function endedCells(victim) {
  const last = victim.steps[victim.steps.length - 1];
  const at = cell();
  at.append(time(last.at));
  return [
    cell(victim.namespace),
    cell(victim.outcome, isProblem(victim) ? "bad" : ""),
    at,
  ];
}

function showDay() {
  const hours = (value) => value.toFixed(value < 10 ? 2 : 0);
  byId("day-note").textContent = shown.since
    ? `Counted since ${new Date(shown.since).toLocaleString()}, when this operator began to lead. ` +
      "Kept: the work that saved victims would have lost without notice, since their start or last save."
    : "";
  byId("past-note").textContent = shown.is_leading
    ? PAST[shown.past_steps](new Date(shown.steps_since).toLocaleString())
    : "";
  byId("namespaces").replaceChildren(...shown.namespaces.map((totals) => {
    const row = element("tr");
    const head = element("th", totals.namespace);
    head.scope = "row";
    row.append(
      head,
      cell(String(totals.victims), "number"),
      cell(String(totals.saved), "number"),
      cell(String(totals.unsaved), totals.unsaved ? "number bad" : "number"),
      cell(hours(totals.kept_hours), "number"),
      cell(hours(totals.lost_hours), "number"),
      cell(hours(totals.cost_hours), "number"),
    );
    return row;
  }));
}

function onKey(event) {
  const isTyping = ["INPUT", "SELECT", "TEXTAREA"].includes(document.activeElement?.tagName);
  if (event.key === "/" && !isTyping && !byId("content").hidden) {
    event.preventDefault();
    byId("text").focus();
  }
}

byId("login").addEventListener("submit", enter);
byId("filters").addEventListener("submit", (event) => event.preventDefault());
byId("filters").addEventListener("input", () => shown && refreshRows());
document.addEventListener("keydown", onKey);
byId("token").focus();
