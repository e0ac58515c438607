"use strict";
/* The page of a scheduler. All texts go in as text nodes: names of jobs, users and nodes are anybody's. */

const RETRY_MS = 2000;
const TABLE_NODES_MAX = 200; // Rows of the table of nodes; its search finds the others.
const SPANS_MAX = 360;
const TIMELINE_MS = 2000;

const byId = (id) => document.getElementById(id);
const state = { spans: [], roster: null, latest: null, stream: null, job: "", sort: {}, search: "", searched: false, retry: 0, goneSince: 0 };

function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key.includes("-") || key === "role" || key === "scope" || key === "colspan") made.setAttribute(key, value);
    else made[key] = value;
  }
  made.append(...children.map((child) => (child instanceof Node ? child : document.createTextNode(String(child)))));
  return made;
}

let colours = {};
function colour(name) {
  return (colours[name] ??= getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
}

const whole = new Intl.NumberFormat(undefined, { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 3 });
const percent = (part, all) => (all > 0 ? `${short.format((100 * part) / all)} %` : "–");
const count = (value) => (value === null ? "" : whole.format(value));
const counted = (number, noun) => `${whole.format(number)} ${noun}${number === 1 ? "" : "s"}`;
/* Of a span: most that are cancelled in it were made before it, so that they are no part of those that it made. */
const reservationsEnded = (span) => span.reservations_cancelled + span.noops + span.launched;
const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString();

function say(where, text) {
  if (where.textContent !== text) where.textContent = text;
}

// ---- the connection

async function ask(path, options) {
  const response = await fetch(path, { cache: "no-store", ...options });
  if (response.ok) return response.status === 204 ? null : response.json();
  let message = response.statusText;
  try {
    message = (await response.json()).error.message;
  } catch { /* It is no answer of a scheduler's. */ }
  throw Object.assign(new Error(message), { status: response.status });
}

async function begin() {
  clearTimeout(state.retry);
  try {
    const history = await ask("/v1/history");
    state.spans = history.spans;
    byId("login").hidden = true;
    byId("main").hidden = false;
    byId("log-out").hidden = !hasLoggedIn();
    draw.charts();
    watch();
    draw.others();
  } catch (error) {
    if (error.status === 401) return logIn();
    gone(error.status ? error.message : "");
  }
}

function watch() {
  state.stream?.close();
  const stream = (state.stream = new EventSource(`/v1/events?search=${encodeURIComponent(state.search)}`));
  stream.addEventListener("roster", (event) => { state.roster = JSON.parse(event.data); });
  stream.addEventListener("state", (event) => here(JSON.parse(event.data)));
  stream.addEventListener("ends", () => gone("it is shutting down"));
  stream.addEventListener("withdrawn", () => { stream.close(); logIn("The token was withdrawn."); });
  stream.onerror = () => gone("");
}

function gone(why) {
  state.stream?.close();
  state.goneSince ||= Date.now() / 1000;
  const line = byId("connection");
  line.className = "gone";
  const reason = why ? `: ${why}` : "";
  say(line, `The scheduler has not answered since ${clock(state.goneSince)}${reason}. What is shown is from before; trying again.`);
  byId("main").classList.add("stale");
  clearTimeout(state.retry);
  state.retry = setTimeout(begin, RETRY_MS);
}

function here(latest) {
  state.latest = latest;
  state.goneSince = 0;
  const line = byId("connection");
  line.className = "";
  say(line, latest.takes_jobs ? "Live" : `Takes no jobs: ${latest.why_not}`);
  byId("main").classList.remove("stale");
  const span = latest.span;
  if (span && span.at_s !== state.spans.at(-1)?.at_s) {
    state.spans = [...state.spans, span].slice(-SPANS_MAX);
    draw.charts();
  }
  draw.all();
  if (state.searched) say(byId("found"), byId("jobs-note").textContent);
  state.searched = false;
}

function logIn(problem = "") {
  state.stream?.close();
  clearTimeout(state.retry);
  byId("main").hidden = byId("log-out").hidden = true;
  byId("login").hidden = false;
  say(byId("connection"), "");
  say(byId("login-problem"), problem);
  byId("token").focus();
}

/* Scripts cannot see the cookie: that there is one to end is noted here, and nothing of it. */
function remember(loggedIn) {
  try {
    localStorage.setItem("logged-in", loggedIn ? "yes" : "no");
  } catch { /* There is no button then. */ }
}

function hasLoggedIn() {
  try {
    return localStorage.getItem("logged-in") === "yes";
  } catch {
    return false;
  }
}

byId("login").addEventListener("submit", async (event) => {
  event.preventDefault();
  const field = byId("token"), token = field.value.trim();
  field.value = "";
  try {
    if (!/^[!-~]+$/.test(token)) throw Object.assign(new Error(), { status: 401 });
    await ask("/v1/session", { headers: { Authorization: `Bearer ${token}` } });
    remember(true);
    begin();
  } catch (error) {
    say(byId("login-problem"), error.status === 401 ? "This is none of the scheduler's tokens." : `The scheduler does not answer. ${error.message}`);
    field.focus();
  }
});

byId("log-out").addEventListener("click", async () => {
  await ask("/v1/session?end=true").catch(() => null);
  remember(false);
  logIn();
});

// ---- tables

/** A table whose heads sort it. columns: [key, head, kind, cell?]; kind: text or number. */
function table(id, columns, first) {
  const own = (state.sort[id] ??= { key: first, down: true });
  const head = byId(id).tHead, body = byId(id).tBodies[0];
  const row = element("tr");
  for (const [key, text, kind] of columns) {
    const button = element("button", { type: "button" }, text);
    const cell = element("th", { scope: "col", className: kind }, button);
    button.addEventListener("click", () => {
      own.down = own.key === key ? !own.down : kind === "number";
      own.key = key;
      draw.all();
    });
    row.append(cell);
  }
  head.replaceChildren(row);
  return (rows, keyOf, chosen) => {
    columns.forEach(([key], at) => {
      const sorted = own.key === key;
      row.cells[at].setAttribute("aria-sort", sorted ? (own.down ? "descending" : "ascending") : "none");
      row.cells[at].firstChild.textContent = columns[at][1] + (sorted ? (own.down ? " ▾" : " ▴") : "");
    });
    const value = (one) => one[own.key] ?? -Infinity;
    const ordered = own.key ? [...rows].sort((a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0) * (own.down ? -1 : 1)) : rows;
    fill(body, columns, ordered, keyOf, chosen);
  };
}

/** Change what is there instead of making it anew: whoever has the focus in a row keeps it. */
function fill(body, columns, rows, keyOf, chosen) {
  const known = new Map([...body.rows].map((row) => [row.dataset.key, row]));
  const focused = body.contains(document.activeElement) ? document.activeElement : null;
  rows.forEach((one, at) => {
    const key = keyOf(one);
    let row = known.get(key);
    known.delete(key);
    if (!row) {
      row = element("tr");
      row.dataset.key = key;
      for (const [, , kind, make] of columns) {
        const cell = element("td", { className: kind });
        if (make?.build) cell.append(make.build(one));
        row.append(cell);
      }
    }
    if (body.rows[at] !== row) body.insertBefore(row, body.rows[at] ?? null);
    row.classList.toggle("chosen", key === chosen);
    columns.forEach(([name, , kind, make], index) => {
      const cell = row.cells[index];
      if (make?.update) make.update(cell, one);
      else {
        const text = typeof make === "function" ? make(one) : kind === "number" ? whole.format(one[name]) : one[name];
        if (cell.textContent !== text) {
          cell.textContent = text;
          if (kind === "text") cell.title = text;
        }
      }
    });
  });
  for (const row of known.values()) row.remove();
  if (focused?.isConnected && document.activeElement !== focused) focused.focus({ preventScroll: true }); // Its row was moved.
}

const bar = {
  build: () => element("div", { className: "bar", "aria-hidden": "true" }, element("span"), element("i")),
  update: (cell, one) => {
    const [span, mark] = cell.firstChild.children, all = Math.max(1, state.latest.slots);
    span.style.width = `${Math.min(100, (100 * one.busy) / all)}%`;
    mark.hidden = one.due === undefined;
    if (!mark.hidden) mark.style.left = `min(calc(100% - 3px), ${(100 * one.due) / all}%)`;
  },
};

const jobLink = {
  build: (job) => {
    const button = element("button", { type: "button", className: "link", title: job.id }, job.name || job.id);
    button.addEventListener("click", () => openJob(job.id));
    return button;
  },
  update: () => {},
};

const fillJobs = table("jobs", [
  ["name", "Job", "text", jobLink], ["user", "User", "text"], ["app", "App", "text"], ["state", "State", "text"],
  ["tasks", "Tasks", "number"], ["unplaced", "Waiting", "number"], ["running", "At nodes", "number"], ["finished", "Finished", "number"],
  ["bad", "Failed or lost", "number", { update: (cell, job) => {
    say(cell, whole.format(job.bad));
    cell.classList.toggle("bad", job.bad > 0);
  } }],
  ["cancelled", "Cancelled", "number"],
  ["submitted_at_s", "Submitted", "number", (job) => clock(job.submitted_at_s)],
  ["lasted", "Time", "number", (job) => duration(job.lasted)],
], "");
const fillUsers = table("users", [
  ["user", "User", "text", (one) => one.user || "all others"], ["busy", "Slots", "number"], ["due", "Due", "number", (one) => short.format(one.due)],
  ["waiting", "Waiting", "number"], ["weight", "Weight", "number", (one) => (one.weight === null ? "" : short.format(one.weight))], ["share", "Of all slots", "", bar],
], "");
const fillNodes = table("nodes", [
  ["id", "Node", "text"], ["address", "Address", "text"], ["state", "State", "text"], ["slots", "Slots", "number"], ["busy", "Busy", "number"], ["reservations", "Reservations", "number"],
], "busy");
const fillOthers = table("others", [
  ["address", "Address", "text", { build: (one) => element("a", { href: `${location.protocol}//${one.address}/`, rel: "noreferrer" }, one.address), update: () => {} }],
  ["policy", "Policy", "text"], ["answer", "State", "text"], ["nodes", "Nodes", "number", (one) => count(one.nodes)], ["slots", "Slots", "number", (one) => count(one.slots)], ["jobs", "Jobs", "number", (one) => count(one.jobs)],
], "address");

// ---- one job

const timeline = new Timeline(byId("timeline"), (text) => say(byId("task-line"), text), colour);
let timelineTimer = 0;

async function openJob(id) {
  state.job = id;
  byId("job").hidden = false;
  say(byId("job-heading"), `Job ${id}`);
  say(byId("task-line"), "");
  draw.all();
  await loadJob();
  byId("job-heading").focus();
}

async function loadJob() {
  clearTimeout(timelineTimer);
  const id = state.job;
  if (!id) return;
  let again = true;
  try {
    const answer = await ask(`/v1/jobs/${encodeURIComponent(id)}/timeline`);
    if (id !== state.job) return;
    timeline.show(answer);
    say(byId("job-summary"), summaryOf(answer));
    again = answer.ended_at_s === null;
  } catch (error) {
    if (id !== state.job) return;
    say(byId("job-summary"), error.status ? error.message : "The scheduler does not answer.");
    again = error.status !== 404 && error.status !== 401;
  }
  if (again) timelineTimer = setTimeout(loadJob, TIMELINE_MS);
}

function summaryOf(answer) {
  const waiting = answer.stages.reduce((sum, stage) => sum + stage.waiting, 0);
  const parts = [
    `${answer.name ? `${answer.name}, of` : "Of"} user ${answer.user}`, answer.how ? `${answer.how} after ${duration(answer.ended_at_s - answer.submitted_at_s)}` : `here for ${duration(answer.now_s - answer.submitted_at_s)}`,
    `${whole.format(answer.tasks)} tasks`, `${whole.format(answer.runs.length)} runs shown`,
  ];
  if (answer.here.length + answer.more_here) parts.push(`${whole.format(answer.here.length + answer.more_here)} at nodes`);
  if (waiting) parts.push(`${whole.format(waiting)} waiting`);
  if (answer.more_runs) parts.push(`${whole.format(answer.more_runs)} have ended and are not remembered`);
  const slowest = timeline.bars.filter((one) => one.status !== "running").reduce((most, one) => (!most || one.end - one.start > most.end - most.start ? one : most), null);
  return `${parts.join(" · ")}.${slowest ? ` The longest: ${timeline.sentence(slowest)}.` : ""}`;
}

byId("job-close").addEventListener("click", () => {
  state.job = "";
  clearTimeout(timelineTimer);
  byId("job").hidden = true;
  draw.all();
  byId("jobs-heading").focus();
});
byId("zoom-in").addEventListener("click", () => timeline.zoom(1.5));
byId("zoom-out").addEventListener("click", () => timeline.zoom(1 / 1.5));
byId("zoom-all").addEventListener("click", () => timeline.showAll());
for (const [id, byNode] of [["by-task", false], ["by-node", true]]) {
  byId(id).addEventListener("click", () => {
    timeline.setByNode(byNode);
    byId("by-task").setAttribute("aria-pressed", String(!byNode));
    byId("by-node").setAttribute("aria-pressed", String(byNode));
  });
}

// ---- nodes

const map = { cell: 0, columns: 1, chosen: -1 };
const nodesOf = () => {
  const { roster, latest } = state;
  if (!roster || !latest || roster.ids.length !== latest.figures.busy.length) return [];
  const { busy, reservations, states } = latest.figures;
  return roster.ids.map((id, at) => ({ id, address: roster.addresses[at], slots: roster.slots[at], busy: busy[at], reservations: reservations[at], state: states[id] ?? "ready" }));
};
const searched = (nodes) => {
  const text = byId("node-search").value.toLowerCase();
  return text ? nodes.filter((node) => node.id.toLowerCase().includes(text)) : nodes;
};

function drawNodes() {
  const nodes = searched(nodesOf()), canvas = byId("nodes-map"), width = canvas.parentElement.clientWidth - 2 * parseFloat(getComputedStyle(canvas.parentElement).paddingLeft);
  map.nodes = nodes;
  map.cell = Math.max(7, Math.min(28, Math.floor(Math.sqrt((width * 220) / Math.max(1, nodes.length)))));
  map.columns = Math.max(1, Math.floor(width / map.cell));
  const height = Math.max(map.cell, Math.ceil(nodes.length / map.columns) * map.cell), ratio = window.devicePixelRatio || 1;
  canvas.style.height = `${height}px`;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  const side = map.cell - 2;
  nodes.forEach((node, at) => {
    const x = (at % map.columns) * map.cell, y = Math.floor(at / map.columns) * map.cell;
    pen.fillStyle = colour(node.state === "ready" ? "idle" : "cordoned");
    pen.fillRect(x, y, side, side);
    const filled = side * Math.min(1, node.busy / Math.max(1, node.slots));
    pen.fillStyle = colour("busy");
    pen.fillRect(x, y + side - filled, side, filled);
    if (node.reservations > node.slots) {
      pen.fillStyle = colour("failed");
      pen.fillRect(x, y, side, Math.max(2, side / 6));
    }
    if (at === map.chosen) {
      pen.strokeStyle = colour("text");
      pen.lineWidth = 2;
      pen.strokeRect(x, y, side, side);
    }
  });
  const busy = nodes.filter((node) => node.busy >= node.slots).length, away = nodes.filter((node) => node.state !== "ready").length;
  canvas.setAttribute("aria-label", `${whole.format(nodes.length)} nodes: ${busy} full, ${away} cordoned or draining. Arrow keys choose one.`);
}

function chooseNode(at) {
  const node = map.nodes?.[at];
  if (!node) return;
  map.chosen = at;
  say(byId("node-line"), `${node.id} (${node.address}), ${node.state}: ${node.busy} of ${node.slots} slots busy, ${node.reservations} reservations`);
  drawNodes();
}

byId("nodes-map").addEventListener("pointermove", (event) => {
  const at = Math.floor(event.offsetY / map.cell) * map.columns + Math.floor(event.offsetX / map.cell);
  if (at !== map.chosen && event.offsetX < map.columns * map.cell) chooseNode(at);
});
byId("nodes-map").addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: map.columns, ArrowUp: -map.columns }[event.key];
  if (!step || !map.nodes?.length) return;
  event.preventDefault();
  chooseNode(Math.min(Math.max(map.chosen + step, 0), map.nodes.length - 1));
});
byId("nodes-view").addEventListener("click", (event) => {
  const asTable = byId("nodes-table").hidden;
  byId("nodes-table").hidden = !asTable;
  byId("nodes-map").hidden = byId("nodes-legend").hidden = asTable;
  event.currentTarget.setAttribute("aria-pressed", String(asTable));
  draw.all();
});
byId("node-search").addEventListener("input", () => { map.chosen = -1; draw.all(); });

// ---- all of it

function tiles(latest) {
  const { rates } = latest, asked = rates.launched + rates.noops;
  return [
    ["nodes", whole.format(latest.nodes)], ["slots held", `${whole.format(latest.busy)} / ${whole.format(latest.slots)}`],
    ["tasks waiting", whole.format(latest.unplaced)], ["jobs", whole.format(latest.found.here)],
    ["starts a second", short.format(rates.launched)], ["no-ops", percent(rates.noops, asked)],
    ["retries a second", short.format(rates.retries)],
  ];
}

function definitions(list, pairs) {
  const key = pairs.map(([name]) => name).join("\n");
  if (list.dataset.key !== key) {
    list.dataset.key = key;
    list.replaceChildren(...pairs.flatMap(([name]) => {
      const both = [element("dt", {}, name), element("dd")];
      return list.id === "tiles" ? [element("div", {}, ...both)] : both;
    }));
  }
  const values = list.querySelectorAll("dd");
  pairs.forEach(([, value], at) => say(values[at], typeof value === "number" ? short.format(value) : String(value)));
}

const draw = {
  all() {
    const { latest } = state;
    if (!latest) return;
    say(byId("address"), latest.address);
    document.title = `${latest.address} – Sparrow scheduler`;
    say(byId("about"), `policy ${latest.policy}${latest.placement ? `, placement ${latest.placement}` : ""}`);
    definitions(byId("tiles"), tiles(latest));
    const jobs = latest.found.jobs.map((job) => ({ ...job, bad: job.failed + job.lost, lasted: (job.ended_at_s ?? latest.now_s) - job.submitted_at_s }));
    fillJobs(jobs, (job) => job.id, state.job);
    say(byId("jobs-note"), jobs.length ? `${counted(jobs.length, "job")}${latest.found.more ? ", and others that are older: search finds some of them" : ""}` : state.search ? "No job has this text." : "No jobs in the last hour.");
    fillUsers(latest.users, (one) => one.user);
    if (byId("nodes-table").hidden) drawNodes();
    else {
      const nodes = searched(nodesOf());
      fillNodes(nodes.slice(0, TABLE_NODES_MAX), (node) => node.id);
      say(byId("node-line"), nodes.length > TABLE_NODES_MAX ? `The first ${TABLE_NODES_MAX} of ${whole.format(nodes.length)} nodes` : counted(nodes.length, "node"));
    }
    definitions(byId("plane"), [["policy", latest.policy], ...latest.plane]);
  },

  charts() {
    const { spans } = state, times = spans.map((span) => span.at_s), of = byId("latency-of").value;
    const column = (part) => spans.map((span) => span[of]?.[part] ?? null);
    chart("latency", ["p50", "p90", "p99"], [times, column("p50"), column("p90"), column("p99")], ["p50", "p90", "p99"], (value) => duration(value), 3);
    const last = spans.findLast((span) => span[of]);
    say(byId("latency-text"), last ? `At ${clock(last.at_s)}: half below ${duration(last[of].p50)}, nine tenths below ${duration(last[of].p90)}, 99 of 100 below ${duration(last[of].p99)}.` : "Nothing has ended in the last hour.");
    const share = (part, all) => spans.map((span) => (all(span) > 0 ? (100 * span[part]) / all(span) : null));
    chart("rates", ["no-ops", "reservations cancelled", "tasks cancelled", "starts retried"], [
      times, share("noops", (span) => span.noops + span.launched), share("reservations_cancelled", reservationsEnded),
      share("cancelled", (span) => span.finished + span.failed + span.cancelled + span.lost), share("retries", (span) => span.launched),
    ], ["p50", "p90", "p99", "fourth"], (value) => `${short.format(value)} %`, 1);
    const now = spans.at(-1);
    say(byId("rates-text"), now ? `In the ${Math.round(now.seconds)} s until ${clock(now.at_s)}: ${percent(now.noops, now.noops + now.launched)} of slots that asked got no task, ${percent(now.reservations_cancelled, reservationsEnded(now))} of reservations that ended were cancelled, ${percent(now.retries, now.launched)} of starts retried.` : "The first figures come after ten seconds.");
  },

  async others() {
    try {
      const { schedulers } = await ask("/v1/schedulers");
      byId("others-section").hidden = !schedulers.length;
      fillOthers(schedulers, (one) => one.address);
    } catch { /* The connection's line says what is wrong. */ }
  },
};

const charts = {};
function chart(id, names, data, colourNames, format, distribution) {
  const box = byId(id), width = box.clientWidth;
  if (!width) return;
  const axis = { stroke: colour("soft"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line") } };
  if (!charts[id]) {
    box.replaceChildren();
    charts[id] = new uPlot({
      width, height: 220,
      scales: { y: distribution === 3 ? { distr: 3 } : { range: (_, low, high) => [0, Math.max(high ?? 0, 1)] } },
      axes: [axis, { ...axis, size: 64, values: (_, values) => values.map((value) => (value === null ? "" : format(value))) }],
      series: [{}, ...names.map((label, at) => ({ label, stroke: colour(colourNames[at]), width: 2, spanGaps: false, dash: at ? [2 + 6 * (3 - at), 3] : undefined, points: { size: 4 }, value: (_, value) => (value === null ? "–" : format(value)) }))],
      cursor: { drag: { x: true, y: false } },
    }, data, box);
    charts[id].box = box;
  } else {
    charts[id].setData(data);
  }
}

function redrawCharts() {
  for (const id of Object.keys(charts)) {
    charts[id].destroy();
    delete charts[id];
  }
  draw.charts();
}

function legend(id, entries) {
  byId(id).replaceChildren(...entries.map(([name, text]) => {
    const swatch = element("span", { "aria-hidden": "true" });
    swatch.style.background = colour(name);
    return element("li", {}, swatch, text);
  }));
}

function legends() {
  legend("timeline-legend", [["reserved", "reserved, waiting"], ["running", "at its node"], ["finished", "finished"], ["failed", "failed"], ["cancelled", "cancelled"], ["lost", "lost"]]);
  legend("nodes-legend", [["idle", "free"], ["busy", "busy (its height: how many slots)"], ["cordoned", "cordoned or draining"], ["failed", "more reservations than slots"]]);
}

let searching = 0;
byId("search").addEventListener("input", (event) => {
  clearTimeout(searching);
  searching = setTimeout(() => {
    state.search = event.target.value.trim();
    state.searched = true;
    watch();
  }, 250);
});
byId("latency-of").addEventListener("change", redrawCharts);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { colours = {}; legends(); redrawCharts(); timeline.redraw(); draw.all(); });
let resizing = 0;
addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(() => { redrawCharts(); draw.all(); }, 150); });
legends();
setInterval(draw.others, 30_000);
begin();
