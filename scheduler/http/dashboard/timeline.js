"use strict";
/* One job's tasks in time, on a canvas: by task or by node, with zoom. Texts of others are drawn as text. */

const ROW_MAX = 18; // Pixels of a row at most.
const AXIS = 22; // Pixels of the time axis.
const GAP_SHARE = 0.15;
const THICK_MIN = 0.7; // Pixels of a bar, so that a task that lasts is seen among thousands.

class Timeline {
  /** @param {HTMLCanvasElement} canvas  @param {(text: string) => void} say  @param {(name: string) => string} colour */
  constructor(canvas, say, colour) {
    this.canvas = canvas;
    this.say = say;
    this.colour = colour;
    this.bars = [];
    this.byNode = false;
    this.chosen = -1;
    this.job = "";
    this.frame = 0;
    canvas.addEventListener("wheel", (event) => this.onWheel(event), { passive: false });
    canvas.addEventListener("pointerdown", (event) => this.onDown(event));
    canvas.addEventListener("pointermove", (event) => this.onMove(event));
    canvas.addEventListener("pointerup", () => { this.drag = null; });
    canvas.addEventListener("keydown", (event) => this.onKey(event));
    new ResizeObserver(() => this.redraw()).observe(canvas);
  }

  /** Show what `/v1/jobs/{job}/timeline` has answered. */
  show(answer) {
    const fresh = answer.job !== this.job;
    this.job = answer.job;
    this.nodes = answer.nodes;
    this.bars = barsOf(answer);
    this.layOut();
    const begin = Math.min(answer.submitted_at_s, ...ends(this.bars, "begin"));
    const end = Math.max(answer.ended_at_s ?? answer.now_s, ...ends(this.bars, "end"));
    this.whole = { from: begin, to: Math.max(end, begin + 1e-3), top: 0, rows: Math.max(1, this.rows) };
    if (fresh || !this.view || this.showsAll) this.showAll();
    if (fresh) this.chosen = -1;
    this.redraw();
  }

  setByNode(byNode) {
    this.byNode = byNode;
    this.layOut();
    if (this.whole) this.whole.rows = Math.max(1, this.rows);
    this.showAll();
  }

  /** Give each bar its row. By node: the first row of the node that is free when it starts. */
  layOut() {
    if (!this.byNode) {
      const tasks = [...new Set(this.bars.map((bar) => bar.task))].sort((a, b) => a - b);
      const rowOf = new Map(tasks.map((task, row) => [task, row]));
      for (const bar of this.bars) bar.row = rowOf.get(bar.task);
      this.rows = tasks.length;
      this.labels = tasks.map((task) => `task ${task}`);
      return;
    }
    const lanes = new Map();
    for (const bar of this.bars) {
      if (bar.node < 0) continue;
      if (!lanes.has(bar.node)) lanes.set(bar.node, []);
      const own = lanes.get(bar.node);
      let lane = own.findIndex((freeAt) => freeAt <= bar.start + 1e-6);
      if (lane < 0) lane = own.push(0) - 1;
      own[lane] = bar.end;
      bar.lane = lane;
    }
    const nodes = [...lanes.keys()].sort((a, b) => (this.nodes[a] < this.nodes[b] ? -1 : 1));
    const firstRow = new Map();
    this.labels = [];
    for (const node of nodes) {
      firstRow.set(node, this.labels.length);
      lanes.get(node).forEach((_, lane) => this.labels.push(lane ? "" : this.nodes[node]));
    }
    for (const bar of this.bars) bar.row = firstRow.get(bar.node) + bar.lane;
    this.rows = this.labels.length;
  }

  showAll() {
    if (!this.whole) return;
    this.view = { ...this.whole };
    this.showsAll = true;
    this.redraw();
  }

  /** Zoom by this factor; the place (parts of width and height) stays where it is. */
  zoom(factor, x = 0.5, y = 0.5) {
    const view = this.view;
    if (!view) return;
    const seconds = Math.max((view.to - view.from) / factor, 1e-5);
    const at = view.from + x * (view.to - view.from);
    view.from = at - x * seconds;
    view.to = view.from + seconds;
    const rows = Math.max(view.rows / factor, Math.min(4, this.whole.rows));
    view.top += y * (view.rows - rows);
    view.rows = rows;
    this.keepInside();
  }

  move(x, y) {
    const view = this.view;
    if (!view) return;
    const seconds = x * (view.to - view.from);
    view.from += seconds;
    view.to += seconds;
    view.top += y * view.rows;
    this.keepInside();
  }

  keepInside() {
    const { view, whole } = this;
    const seconds = Math.min(view.to - view.from, whole.to - whole.from);
    view.from = Math.min(Math.max(view.from, whole.from), whole.to - seconds);
    view.to = view.from + seconds;
    view.rows = Math.min(view.rows, whole.rows);
    view.top = Math.min(Math.max(view.top, 0), whole.rows - view.rows);
    this.showsAll = seconds >= 0.999 * (whole.to - whole.from) && view.rows >= 0.999 * whole.rows;
    this.redraw();
  }

  redraw() {
    if (!this.frame) this.frame = requestAnimationFrame(() => { this.frame = 0; this.draw(); });
  }

  // ---- drawing

  draw() {
    const { canvas, view } = this;
    const width = canvas.clientWidth, height = canvas.clientHeight, ratio = window.devicePixelRatio || 1;
    if (!width || !height || !view) return;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.font = "11px system-ui, 'DejaVu Sans', sans-serif";
    const rowHeight = Math.min(ROW_MAX, (height - AXIS) / view.rows);
    const left = rowHeight >= 11 ? Math.min(130, width * 0.25) : 8;
    this.place = { left, rowHeight, scale: (width - left - 8) / (view.to - view.from) };
    this.drawAxis(pen, width, height);
    pen.save();
    pen.beginPath();
    pen.rect(left, 0, width - left, height - AXIS);
    pen.clip();
    this.drawBars(pen, width);
    pen.restore();
    if (rowHeight >= 11) this.drawLabels(pen, left, height);
  }

  x(time) { return this.place.left + (time - this.view.from) * this.place.scale; }

  drawBars(pen, width) {
    const { rowHeight } = this.place, { view } = this;
    const thick = Math.max(rowHeight * (1 - GAP_SHARE), THICK_MIN);
    const last = view.top + view.rows + 1;
    for (const [part, name] of [["wait", "reserved"], ["run", ""]]) {
      let filled = "";
      for (const bar of this.bars) {
        if (bar.row < view.top - 1 || bar.row > last) continue;
        const from = part === "wait" ? bar.begin : bar.start, to = part === "wait" ? bar.start : bar.end;
        if (part === "wait" && this.byNode) continue;
        const x = this.x(from), end = this.x(to);
        if (!(end >= 0) || x > width || (part === "wait" && end - x < 0.5)) continue;
        const colour = this.colour(name || bar.status);
        if (colour !== filled) pen.fillStyle = filled = colour;
        const y = (bar.row - view.top) * rowHeight;
        if (part === "wait") pen.fillRect(x, y + thick * 0.35, end - x, Math.max(thick * 0.3, 0.5));
        else pen.fillRect(x, y, Math.max(end - x, 1), thick);
      }
    }
    const bar = this.bars[this.chosen];
    if (bar) {
      pen.strokeStyle = this.colour("focus");
      pen.lineWidth = 2;
      const x = this.x(bar.start);
      pen.strokeRect(x - 1, (bar.row - view.top) * rowHeight - 1, Math.max(this.x(bar.end) - x, 3) + 2, Math.max(thick, 3) + 2);
    }
  }

  drawAxis(pen, width, height) {
    const { view } = this, seconds = view.to - view.from;
    const step = roundStep((seconds / Math.max(2, width / 110)));
    pen.fillStyle = this.colour("soft");
    pen.strokeStyle = this.colour("line");
    pen.lineWidth = 1;
    pen.textBaseline = "middle";
    for (let at = Math.ceil((view.from - this.whole.from) / step) * step; at <= view.to - this.whole.from + step / 1e6; at += step) {
      const x = Math.round(this.x(this.whole.from + at)) + 0.5;
      pen.beginPath();
      pen.moveTo(x, 0);
      pen.lineTo(x, height - AXIS + 4);
      pen.stroke();
      const text = duration(at, step);
      pen.fillText(text, Math.min(x - 2, width - pen.measureText(text).width - 2), height - AXIS / 2 + 2);
    }
  }

  drawLabels(pen, left, height) {
    const { view } = this, { rowHeight } = this.place;
    pen.fillStyle = this.colour("soft");
    pen.textBaseline = "middle";
    pen.save();
    pen.beginPath();
    pen.rect(0, 0, left - 6, height - AXIS);
    pen.clip();
    for (let row = Math.max(0, Math.floor(view.top)); row < Math.min(this.labels.length, view.top + view.rows + 1); row++) {
      pen.fillText(this.labels[row], 2, (row - view.top + 0.45) * rowHeight);
    }
    pen.restore();
  }

  // ---- people

  parts(event) {
    const box = this.canvas.getBoundingClientRect();
    return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / Math.max(1, box.height - AXIS), event.clientX - box.left, event.clientY - box.top];
  }

  onWheel(event) {
    if (!this.view || (this.showsAll && event.deltaY > 0)) return; // The page scrolls on.
    event.preventDefault();
    const [x, y] = this.parts(event);
    this.zoom(event.deltaY < 0 ? 1.25 : 0.8, x, Math.min(1, y));
  }

  onDown(event) {
    this.drag = [event.clientX, event.clientY];
    this.canvas.setPointerCapture(event.pointerId);
  }

  onMove(event) {
    if (this.drag) {
      const [x, y] = this.drag;
      this.move((x - event.clientX) / this.canvas.clientWidth, (y - event.clientY) / this.canvas.clientHeight);
      this.drag = [event.clientX, event.clientY];
      return;
    }
    const [, , x, y] = this.parts(event);
    this.choose(this.barAt(x, y));
  }

  onKey(event) {
    const steps = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 };
    const deeds = {
      "+": () => this.zoom(1.5), "=": () => this.zoom(1.5), "-": () => this.zoom(1 / 1.5), 0: () => this.showAll(),
      PageDown: () => this.move(0, 0.8), PageUp: () => this.move(0, -0.8), Home: () => this.choose(0), End: () => this.choose(this.bars.length - 1),
    };
    if (event.key in steps) this.choose(Math.min(Math.max(this.chosen + steps[event.key], 0), this.bars.length - 1), true);
    else if (event.key in deeds) deeds[event.key]();
    else return;
    event.preventDefault();
  }

  barAt(x, y) {
    if (!this.place) return -1;
    const row = y / this.place.rowHeight + this.view.top, time = this.view.from + (x - this.place.left) / this.place.scale;
    const slack = 2 / this.place.scale, near = Math.max(1, 2 / this.place.rowHeight);
    let best = -1, least = Infinity;
    this.bars.forEach((bar, index) => {
      const away = Math.abs(bar.row + 0.5 - row);
      if (away < near && away < least && time >= bar.begin - slack && time <= bar.end + slack) [best, least] = [index, away];
    });
    return best;
  }

  choose(index, bringIntoView = false) {
    const bar = this.bars[index];
    if (!bar) return;
    this.chosen = index;
    if (bringIntoView) this.bringIntoView(bar);
    this.say(this.sentence(bar));
    this.redraw();
  }

  bringIntoView(bar) {
    const { view } = this, seconds = view.to - view.from;
    if (bar.row < view.top || bar.row > view.top + view.rows - 1) view.top = bar.row - view.rows / 2;
    if (bar.end < view.from || bar.start > view.to) {
      view.from = bar.start - seconds / 4;
      view.to = view.from + seconds;
    }
    this.keepInside();
  }

  sentence(bar) {
    const waited = bar.start > bar.begin ? `, waited ${duration(bar.start - bar.begin)}` : "";
    const stage = bar.stage ? ` of stage ${bar.stage}` : "";
    if (bar.status === "waiting") return `${bar.text}${stage}: waiting for ${duration(bar.end - bar.begin)}`;
    const where = bar.node >= 0 ? ` on ${this.nodes[bar.node]}` : "";
    if (bar.status === "running") return `Task ${bar.task}${stage}: at its node${where}${bar.known ? ` for ${duration(bar.end - bar.start)}` : ""}`;
    return `Task ${bar.task}${stage}: ${bar.status}${waited}, ran ${duration(bar.end - bar.start)}${where}`;
  }
}

/** Bars of an answer, by task: when nodes were sought for it, when it started, when it ended. */
function barsOf(answer) {
  const { stages } = answer;
  let index = 0;
  const stageOf = (task) => {
    if (!stages[index] || task < stages[index].first || task >= stages[index].first + stages[index].tasks) {
      index = stages.findIndex((stage) => task >= stage.first && task < stage.first + stage.tasks);
      if (index < 0) index = 0;
    }
    return stages[index];
  };
  const bars = [];
  for (const [task, node, start, service, status] of answer.runs) {
    const stage = stageOf(task);
    bars.push({ task, node, start, end: start + service, begin: Math.min(stage?.reserved_at_s ?? start, start), status, stage: stage?.name });
  }
  for (const [task, node, since] of answer.here) {
    const stage = stageOf(task), start = since ?? answer.now_s;
    bars.push({ task, node, start, end: Math.max(answer.now_s, start), begin: Math.min(stage?.reserved_at_s ?? start, start), status: "running", known: since !== null, stage: stage?.name });
  }
  bars.sort((a, b) => a.task - b.task || a.start - b.start);
  // A second start of a task waited since the first one's end.
  bars.forEach((bar, at) => {
    const before = bars[at - 1];
    if (before && before.task === bar.task) bar.begin = Math.min(Math.max(before.end, bar.begin), bar.start);
  });
  return bars;
}

function* ends(bars, name) {
  // The least and the greatest alone: functions do not take ten thousand arguments everywhere.
  let least = Infinity, most = -Infinity;
  for (const bar of bars) {
    least = Math.min(least, bar[name]);
    most = Math.max(most, bar[name]);
  }
  if (bars.length) {
    yield least;
    yield most;
  }
}

function roundStep(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1e-6)));
  if (least > 20) return [30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 21600, 86400].find((step) => step >= least) ?? 86400 * Math.ceil(least / 86400);
  return [1, 2, 5, 10].map((part) => part * power).find((step) => step >= least * 0.999);
}

/** Seconds in words as short as they can be; `step`: to which they are exact. */
function duration(seconds, step = seconds / 100) {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds < 1e-9) return "0 s";
  if (seconds >= 3600) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  if (seconds >= 120) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  const digits = (unit) => Math.min(3, Math.max(0, Math.ceil(-Math.log10(Math.max(step, 1e-9) * unit) - 1e-9)));
  if (seconds >= 1) return `${seconds.toFixed(digits(1))} s`;
  if (seconds >= 1e-3) return `${(seconds * 1e3).toFixed(digits(1e3))} ms`;
  return `${Math.round(seconds * 1e6)} µs`;
}
