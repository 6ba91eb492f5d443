// The picture of a program on a canvas: only what is seen is drawn, and no text that is too small to read.

const SCALES = { least: 0.02, most: 4 };
const SMALL = { text: 0.38, box: 4 }; // the scale below which no text is drawn; pixels of a box below which nothing in it is
const ROOM_OF_MAP = { width: 480, height: 420 }; // of a smaller picture it would cover too much
const REDUCED = matchMedia("(prefers-reduced-motion: reduce)");

class View {
  // on: select(item), toggle(item), step(item, by)
  constructor(program, way, on) {
    this.program = program;
    this.way = way;
    this.on = on;
    this.level = program.root;
    this.selected = null;
    this.hover = null;
    this.hits = new Set();
    this.at = { x: 0, y: 0, scale: 1 };
    this.canvas = document.createElement("canvas");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "application");
    this.canvas.setAttribute("aria-roledescription", "graph");
    this.canvas.setAttribute("aria-label", `Graph of ${program.name}. Arrows go to neighbours, Enter opens and closes.`);
    this.pen = this.canvas.getContext("2d");
    this.map = new Minimap(this);
    this.listen();
  }

  get layout() {
    return layoutOf(this.level);
  }

  // ---- where things are

  resize() {
    const ratio = window.devicePixelRatio || 1;
    const { clientWidth, clientHeight } = this.canvas;
    this.canvas.width = Math.round(clientWidth * ratio);
    this.canvas.height = Math.round(clientHeight * ratio);
    this.draw();
  }

  // Show everything, or of much the top.
  fit(isWhole = false) {
    const { w, h } = this.layout;
    const [width, height] = [this.canvas.clientWidth, this.canvas.clientHeight];
    const whole = Math.min((width - 60) / w, (height - 120) / h, 1.25);
    const scale = Math.max(isWhole ? whole : Math.max(whole, Math.min((width - 60) / w, 1)), SCALES.least);
    this.go({ x: (width - w * scale) / 2, y: h * scale > height - 100 ? 48 : (height - h * scale) / 2, scale });
  }

  // Glide to a place, or jump.
  go(to, isJump = false) {
    cancelAnimationFrame(this.gliding);
    if (isJump || REDUCED.matches || !this.wasDrawn) {
      this.at = to;
      this.draw();
      return;
    }
    const [from, start] = [{ ...this.at }, performance.now()];
    const step = (now) => {
      const t = Math.min(Math.max((now - start) / 180, 0), 1);
      const eased = t * (2 - t);
      for (const key of ["x", "y", "scale"]) this.at[key] = from[key] + (to[key] - from[key]) * eased;
      this.draw();
      if (t < 1) this.gliding = requestAnimationFrame(step);
    };
    this.gliding = requestAnimationFrame(step);
  }

  zoom(by, x = this.canvas.clientWidth / 2, y = this.canvas.clientHeight / 2) {
    cancelAnimationFrame(this.gliding);
    const scale = Math.min(Math.max(this.at.scale * by, SCALES.least), SCALES.most);
    const ratio = scale / this.at.scale;
    this.at = { x: x - (x - this.at.x) * ratio, y: y - (y - this.at.y) * ratio, scale };
    this.draw();
  }

  // The box of an item in the picture, {x, y, w, h}; null: it is in something closed.
  boxOf(item) {
    if (item.level === this.level) {
      const box = this.layout.boxes[item.index];
      return { x: box.x, y: box.y, w: box.w, h: box.h };
    }
    const { owner } = item.level;
    const around = owner?.open ? this.boxOf(owner) : null;
    if (around === null) return null;
    const outer = layoutOf(owner.level).boxes[owner.index];
    const part = outer.parts.find((one) => one.level === item.level);
    if (!part) return null;
    const box = part.layout.boxes[item.index];
    return { x: around.x + part.x + box.x, y: around.y + part.y + box.y, w: box.w, h: box.h };
  }

  // Bring an item into sight, at a scale at which it can be read.
  reach(item, isJump = false) {
    const box = this.boxOf(item);
    if (box === null) return;
    const [width, height] = [this.canvas.clientWidth, this.canvas.clientHeight];
    const scale = Math.min(Math.max(this.at.scale, 0.75), SCALES.most);
    const x = box.x * this.at.scale + this.at.x;
    const y = box.y * this.at.scale + this.at.y;
    const isSeen = x > 20 && y > 20 && x + Math.min(box.w, 200) * scale < width - 20 && y + Math.min(box.h, 60) * scale < height - 20;
    if (isSeen && scale === this.at.scale) {
      this.draw();
      return;
    }
    const top = box.h * scale > height - 80 ? 40 : (height - box.h * scale) / 2;
    this.go({ x: width / 2 - (box.x + box.w / 2) * scale, y: top - box.y * scale, scale }, isJump);
  }

  // Keep an item where it is on the screen while `change` opens or closes something; where that hides it, what it is in.
  keep(item, change) {
    const around = [item];
    while (around.at(-1).level.owner) around.push(around.at(-1).level.owner);
    const places = around.map((one) => this.boxOf(one));
    change();
    const shown = around.findIndex((one) => this.boxOf(one) !== null);
    const [before, after] = [places[shown], this.boxOf(around[shown])];
    if (before === null) {
      this.reach(around[shown]);
      return;
    }
    cancelAnimationFrame(this.gliding);
    const { scale } = this.at;
    const x = this.at.x + (before.x + before.w / 2 - after.x - after.w / 2) * scale;
    const y = this.at.y + (before.y - after.y) * scale;
    const [left, top] = [x + after.x * scale, y + after.y * scale];
    this.at = {
      x: x + intoSight(left, after.w * scale, this.canvas.clientWidth),
      y: y + intoSight(top, after.h * scale, this.canvas.clientHeight),
      scale,
    };
    this.draw();
  }

  // What is at a point of the canvas: { item, button }, the button of a title or null; null: nothing.
  find(x, y) {
    const { scale } = this.at;
    return findIn(this.layout, (x - this.at.x) / scale, (y - this.at.y) / scale);
  }

  // ---- drawing

  draw() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      this.paint(this.pen, this.at, this.canvas.width, this.canvas.height, window.devicePixelRatio || 1);
      this.map.paint();
      this.wasDrawn = true;
    });
  }

  paint(pen, at, width, height, ratio) {
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.clearRect(0, 0, width, height);
    const scale = at.scale * ratio;
    pen.setTransform(scale, 0, 0, scale, at.x * ratio, at.y * ratio);
    const sight = { x0: -at.x / at.scale, y0: -at.y / at.scale };
    sight.x1 = sight.x0 + width / scale;
    sight.y1 = sight.y0 + height / scale;
    new Painter(this, pen, at.scale).level(this.layout, sight);
  }

  // Draw everything into the canvas, finely, for paper.
  print() {
    const { w, h } = this.layout;
    const scale = Math.min(1600 / w, 2200 / h, 3);
    [this.canvas.width, this.canvas.height] = [Math.ceil(w * scale) + 20, Math.ceil(h * scale) + 20];
    this.paint(this.pen, { x: 10, y: 10, scale }, this.canvas.width, this.canvas.height, 1);
  }

  // ---- what people do

  listen() {
    const { canvas } = this;
    const held = new Map(); // pointers that are down
    let moved = 0;
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      held.set(event.pointerId, event);
      moved = 0;
      cancelAnimationFrame(this.gliding);
    });
    canvas.addEventListener("pointermove", (event) => {
      const before = held.get(event.pointerId);
      if (!before) return this.point(event);
      held.set(event.pointerId, event);
      moved += Math.abs(event.offsetX - before.offsetX) + Math.abs(event.offsetY - before.offsetY);
      const other = [...held.values()].find((one) => one.pointerId !== event.pointerId);
      if (other) {
        const span = (one) => Math.hypot(one.offsetX - other.offsetX, one.offsetY - other.offsetY);
        return this.zoom(span(event) / (span(before) || 1), other.offsetX, other.offsetY);
      }
      if (moved < 4) return undefined;
      canvas.classList.add("moving");
      this.at.x += event.offsetX - before.offsetX;
      this.at.y += event.offsetY - before.offsetY;
      return this.draw();
    });
    for (const end of ["pointerup", "pointercancel"]) {
      canvas.addEventListener(end, (event) => {
        held.delete(event.pointerId);
        canvas.classList.remove("moving");
        if (end === "pointerup" && moved < 4) this.click(event);
      });
    }
    canvas.addEventListener("pointerleave", () => this.point(null));
    canvas.addEventListener("dblclick", (event) => {
      const found = this.find(event.offsetX, event.offsetY);
      if (found?.item && !found.button && canOpen(found.item)) this.on.toggle(found.item);
    });
    canvas.addEventListener("wheel", (event) => { // a pinch comes as a wheel with Ctrl
      event.preventDefault();
      const lines = event.deltaMode ? 18 : 1;
      const [x, y] = [event.deltaX * lines, event.deltaY * lines];
      if (event.ctrlKey || event.metaKey) {
        this.zoom(Math.exp(-Math.min(Math.max(y, -60), 60) * 0.008), event.offsetX, event.offsetY);
        return;
      }
      this.at.x -= event.shiftKey ? y : x;
      this.at.y -= event.shiftKey ? x : y;
      this.draw();
    }, { passive: false });
    new ResizeObserver(() => this.resize()).observe(canvas);
  }

  point(event) {
    const found = event ? this.find(event.offsetX, event.offsetY) : null;
    this.canvas.classList.toggle("over", found !== null);
    if (this.hover === (found?.item ?? null)) return;
    this.hover = found?.item ?? null;
    this.draw();
  }

  click(event) {
    this.canvas.focus({ preventScroll: true });
    const found = this.find(event.offsetX, event.offsetY);
    if (found?.button === "toggle") this.on.toggle(found.item);
    else if (found?.button) this.on.step(found.item, found.button === "next" ? 1 : -1);
    else this.on.select(found?.item ?? null);
  }
}

// How far to move what begins at `start` and is out of sight: as little as shows it, or of much its beginning.
function intoSight(start, length, room) {
  const edge = 40;
  if (start + length > edge && start < room - edge) return 0;
  return (start < edge ? edge : Math.max(edge, room - edge - length)) - start;
}

// The innermost item at a point of a layout.
function findIn(layout, x, y) {
  for (const box of layout.boxes) {
    const [dx, dy] = [x - box.x, y - box.y];
    if (dx < 0 || dy < 0 || dx > box.w || dy > box.h) continue;
    if (!box.isPort) {
      for (const { name, at, w } of buttonsOf(box)) {
        if (dx >= at && dx <= at + w && dy <= SPACE.title) return { item: box.item, button: name };
      }
    }
    for (const part of box.parts) {
      const found = findIn(part.layout, dx - part.x, dy - part.y);
      if (found) return found;
    }
    return { item: box.item, button: null };
  }
  return null;
}

// The buttons of the title of a box: names, and where they are.
function buttonsOf(box) {
  if (!canOpen(box.item)) return [];
  const buttons = [{ name: "toggle", at: box.w - 24, w: 20, text: box.parts.length ? "−" : "+" }];
  if (box.parts.length && box.item.members.length > 1) {
    buttons.push({ name: "next", at: box.w - 46, w: 20, text: "›" }, { name: "previous", at: box.w - 66, w: 20, text: "‹" });
  }
  return buttons;
}

// Draws levels with one pen.
class Painter {
  constructor(view, pen, scale) {
    this.view = view;
    this.pen = pen;
    this.scale = scale;
    this.ink = inks();
    this.near = new Set();
    const item = view.selected;
    if (item?.node) for (const node of [...item.node.used, ...item.node.users]) this.near.add(node.item);
  }

  level(layout, sight) {
    this.lines(layout, sight);
    for (const box of layout.boxes) {
      if (box.x > sight.x1 || box.y > sight.y1 || box.x + box.w < sight.x0 || box.y + box.h < sight.y0) continue;
      this.pen.save();
      this.pen.translate(box.x, box.y);
      this.pen.tell?.(toldOf(box.item));
      if (box.isPort) this.port(box);
      else this.box(box, { x0: sight.x0 - box.x, y0: sight.y0 - box.y, x1: sight.x1 - box.x, y1: sight.y1 - box.y });
      this.pen.restore();
    }
  }

  // ---- lines

  lines(layout, sight) {
    const { pen, ink } = this;
    const { selected } = this.view;
    const marked = [];
    pen.lineWidth = Math.max(1.2, 0.35 / this.scale);
    pen.strokeStyle = ink.line;
    pen.fillStyle = ink.line;
    for (const line of layout.lines) {
      const { source, target } = line;
      const low = line.turned ? -Infinity : Math.min(source.y, target.y);
      if (low > sight.y1 || (!line.turned && Math.max(source.y + source.h, target.y + target.h) < sight.y0)) continue;
      if (selected && (source.item === selected || target.item === selected)) marked.push(line);
      else this.line(line);
    }
    pen.strokeStyle = ink.accent;
    pen.fillStyle = ink.accent;
    pen.lineWidth = Math.max(2, 1 / this.scale);
    for (const line of marked) this.line(line);
  }

  line({ points, target, turned, ports }) {
    const { pen } = this;
    pen.beginPath();
    pen.moveTo(points[0], points[1]);
    if (turned) {
      const [, , x, low, side, , , high, endX, , , endY] = points;
      pen.lineTo(x, low);
      pen.bezierCurveTo(x, low + SPACE.bend, side, low + SPACE.bend, side, low);
      pen.lineTo(side, high);
      pen.bezierCurveTo(side, high - SPACE.bend, endX, high - SPACE.bend, endX, high);
      pen.lineTo(endX, endY);
    } else {
      for (let i = 2; i < points.length; i += 2) {
        const [x0, y0, x1, y1] = points.slice(i - 2, i + 2);
        if (Math.abs(x0 - x1) < 0.5) pen.lineTo(x1, y1);
        else pen.bezierCurveTo(x0, (y0 + y1) / 2, x1, (y0 + y1) / 2, x1, y1);
      }
    }
    if (turned) pen.setLineDash([5, 3]);
    pen.stroke();
    if (turned) pen.setLineDash([]);
    const [x, y] = points.slice(-2);
    if (target.isPort || (target.parts.length && target.item.members.length) || this.scale < SMALL.text) return;
    pen.beginPath();
    pen.moveTo(x, y);
    pen.lineTo(x - 4, y - 7);
    pen.lineTo(x + 4, y - 7);
    pen.fill();
    if (ports.length > 1) {
      pen.font = FONTS.note;
      pen.textAlign = "left";
      pen.fillText(`${ports.length}`, x + 7, y - 3);
    }
  }

  // ---- boxes

  port(box) {
    const { pen, ink } = this;
    const isInput = box.item.kind === "input";
    const isSelected = this.view.selected === box.item;
    pen.fillStyle = pen.strokeStyle = isSelected ? ink.accent : ink.line;
    pen.lineWidth = isSelected ? 2 : 1.2;
    pen.beginPath();
    pen.moveTo(box.w / 2, 0);
    pen.lineTo(box.w / 2, box.h);
    pen.stroke();
    if (this.scale < SMALL.text) return;
    pen.beginPath();
    pen.arc(box.w / 2, isInput ? 0 : box.h, 3.2, 0, 7);
    pen.fill();
  }

  box(box, sight) {
    const { pen, ink } = this;
    const { item } = box;
    const [fill, line] = this.colours(item, box.parts.length > 0);
    const isSelected = this.view.selected === item;
    const pile = item.members.length > 1 && !box.parts.length ? SPACE.pile : 0;
    const radius = item.family === "end" ? (box.h - pile) / 2 : box.parts.length ? 12 : 7;
    pen.fillStyle = fill;
    pen.strokeStyle = line;
    pen.lineWidth = Math.max(1.2, 0.5 / this.scale);
    if (pile && box.w * this.scale > SMALL.box) {
      for (const inset of [pile, pile / 2]) this.shape(inset, inset, box.w - 2 * inset, box.h - pile, radius);
    }
    if (item.family === "check") pen.setLineDash([3, 2]);
    this.shape(0, 0, box.w, box.h - pile, radius);
    pen.setLineDash([]);
    if (isSelected || this.view.hover === item || this.near.has(item) || this.view.hits.has(item)) {
      pen.strokeStyle = this.view.hits.has(item) && !isSelected ? ink.hit : ink.accent;
      pen.lineWidth = Math.max(isSelected ? 2.6 : 1.4, (isSelected ? 2 : 1) / this.scale);
      pen.beginPath();
      pen.roundRect(0, 0, box.w, box.h - pile, radius);
      pen.stroke();
    }
    if (!box.parts.length) this.strip(box, box.h - pile);
    if (box.parts.length && box.w * this.scale > SMALL.box) {
      for (const part of box.parts) {
        pen.save();
        pen.translate(part.x, part.y);
        this.level(part.layout, { x0: sight.x0 - part.x, y0: sight.y0 - part.y, x1: sight.x1 - part.x, y1: sight.y1 - part.y });
        pen.restore();
        if (part.name && this.scale >= SMALL.text) this.text(part.name, "note", part.x, part.y - 8, "left", ink.note);
      }
    }
    if (this.scale < SMALL.text) return;
    if (box.parts.length) this.title(box);
    else this.texts(box, pile);
    this.badge(box);
  }

  shape(x, y, w, h, radius) {
    const { pen } = this;
    pen.beginPath();
    if (w * this.scale > SMALL.box) pen.roundRect(x, y, w, h, radius);
    else pen.rect(x, y, w, h);
    pen.fill();
    pen.stroke();
  }

  text(text, style, x, y, align, colour) {
    const { pen } = this;
    pen.font = FONTS[style];
    pen.textAlign = align;
    pen.fillStyle = colour;
    pen.fillText(text, x, y);
  }

  texts(box, pile) {
    const { ink } = this;
    const { item } = box;
    const isEnd = item.family === "end";
    let y = 6;
    for (const { text, style } of item.lines) {
      y += LINE[style];
      this.text(text, style, box.w / 2, y - 3.5, "center", isEnd ? ink.end : ink[style]);
    }
    if (canOpen(item) && !this.view.isStill) this.text("+", "name", box.w - 13, 17, "center", ink.note);
  }

  // The title of an open box, on a ground of its own, for lines come in there.
  title(box) {
    const { ink } = this;
    const { item } = box;
    const count = item.members.length;
    const buttons = this.view.isStill ? [] : buttonsOf(box);
    const note = count > 1 ? `${item.member + 1} of ${count}` : "";
    const first = (buttons.at(-1)?.at ?? box.w - 12) - (note ? widthOf(note, "note") + 10 : 0);
    const text = cutTo(openTitleOf(item), "name", Math.max(first - 16, 30));
    this.ground(6, widthOf(text, "name") + 14);
    this.text(text, "name", 13, 20, "left", ink.name);
    if (note || buttons.length) this.ground(first, box.w - 5 - first);
    if (note) this.text(note, "note", first + 6, 19.5, "left", ink.note);
    for (const button of buttons) this.text(button.text, "name", button.at + 10, 20, "center", ink.note);
  }

  ground(x, w) {
    const { pen } = this;
    pen.fillStyle = this.ink.title;
    pen.beginPath();
    pen.roundRect(x, 5, w, 21, 6);
    pen.fill();
  }

  // The categories of what is in a closed box, as a bar at its lower side.
  strip(box, h) {
    const { item } = box;
    const { way } = this.view;
    if (!canOpen(item) || way.name === "none") return;
    const counts = [...countsOfItem(item, way)].filter(([category]) => category !== "");
    const total = counts.reduce((sum, [, count]) => sum + count, 0);
    if (!total) return;
    const { pen } = this;
    const w = box.w - 16;
    let x = 8;
    for (const [category, count] of counts) {
      const share = (count / total) * w;
      pen.fillStyle = way.colours(category)[this.ink.isDark ? 3 : 1];
      pen.fillRect(x, h - 6, Math.max(share, 4), 3);
      x += share;
    }
  }

  badge(box) {
    const { count, isError } = findingsIn(box.item);
    if (!count || box.parts.length) return;
    const { pen, ink } = this;
    pen.fillStyle = isError ? ink.error : ink.warning;
    pen.beginPath();
    pen.arc(box.w - 2, 2, 8, 0, 7);
    pen.fill();
    this.text(count > 99 ? "99" : `${count}`, "note", box.w - 2, 5.5, "center", "#fff");
  }

  colours(item, isOpen) {
    const { way, program } = this.view;
    const at = this.ink.isDark ? 2 : 0;
    const { colours } = program;
    if (isOpen) return colours.open.slice(at);
    if (item.family === "end") return colours.end.slice(at);
    if (item.kind !== "node" || item.subgraphs.length) {
      const category = way.whole([...countsOfItem(item, way).keys()].filter((one) => one !== ""));
      return (category === undefined ? colours.module : way.colours(category)).slice(at);
    }
    return way.colours(way.of(item.node)).slice(at);
  }
}

// The colours of texts and lines, from the style sheet.
let knownInks = null;
function inks() {
  if (knownInks) return knownInks;
  const style = getComputedStyle(document.documentElement);
  const names = ["name", "note", "weight", "line", "end", "title", "accent", "hit", "error", "warning"];
  knownInks = Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  knownInks.isDark = document.documentElement.dataset.theme === "dark";
  return knownInks;
}

// A small picture of the whole, with a frame around what is seen; of a whole that is seen there is none.
class Minimap {
  constructor(view) {
    this.view = view;
    this.canvas = document.createElement("canvas");
    this.canvas.className = "map";
    this.canvas.setAttribute("aria-hidden", "true");
    this.pen = this.canvas.getContext("2d");
    this.of = [];
    const go = (event) => {
      if (event.buttons !== 1) return;
      const { at, canvas } = view;
      const x = (event.offsetX - this.at.x) / this.at.scale;
      const y = (event.offsetY - this.at.y) / this.at.scale;
      view.go({ x: canvas.clientWidth / 2 - x * at.scale, y: canvas.clientHeight / 2 - y * at.scale, scale: at.scale }, true);
    };
    this.canvas.addEventListener("pointerdown", go);
    this.canvas.addEventListener("pointermove", go);
  }

  paint() {
    const { view, canvas } = this;
    const { layout, at } = view;
    const [width, height] = [view.canvas.clientWidth, view.canvas.clientHeight];
    const isWhole = at.x >= 0 && at.y >= 0 && at.x + layout.w * at.scale <= width && at.y + layout.h * at.scale <= height;
    canvas.hidden = isWhole || width < ROOM_OF_MAP.width || height < ROOM_OF_MAP.height;
    if (canvas.hidden) return;
    const scale = Math.min(150 / layout.w, 190 / layout.h, 0.4);
    const size = [Math.max(layout.w * scale, 24) + 12, layout.h * scale + 12].map(Math.ceil);
    this.at = { x: (size[0] - layout.w * scale) / 2, y: 6, scale };
    const ratio = window.devicePixelRatio || 1;
    const of = [layout, view.way, inks(), view.selected];
    if (of.some((one, i) => one !== this.of[i])) {
      this.of = of;
      this.still = document.createElement("canvas");
      for (const one of [this.still, canvas]) [one.width, one.height] = size.map((length) => length * ratio);
      canvas.style.width = `${size[0]}px`;
      canvas.style.height = `${size[1]}px`;
      view.paint(this.still.getContext("2d"), this.at, this.still.width, this.still.height, ratio);
    }
    const { pen } = this;
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.clearRect(0, 0, canvas.width, canvas.height);
    pen.drawImage(this.still, 0, 0);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    const frame = [-at.x / at.scale, -at.y / at.scale, width / at.scale, height / at.scale].map((length) => length * scale);
    pen.strokeStyle = inks().accent;
    pen.lineWidth = 1.5;
    pen.strokeRect(frame[0] + this.at.x, frame[1] + this.at.y, frame[2], frame[3]);
  }
}
