// Where boxes and edges of a level are drawn. The ranks and the order in each rank are known (csrc/core/layout.c found
// them); here the rows are spaced for boxes as large as they are, which changes when modules are opened.

const SPACE = { box: 18, edge: 12, rank: 26, title: 30, pad: 14, port: 10, pile: 6, sign: 11, bend: 16 };
const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif";
const FONTS = { name: `600 12px ${FONT}`, note: `10.5px ${FONT}`, weight: `10.5px ${FONT}` };
const LINE = { name: 16, note: 14, weight: 14 };
const WIDEST = 230;
const MOST_WEIGHTS = 3;
const MOST_FATES = 3;

const PLANNED = [262.6, "embedding transpose layer_norm f32[2, 8, 64]"]; // the width of a name in Helvetica, which ranks are planned for

const ruler = document.createElement("canvas").getContext("2d");
const widths = new Map();

function widthOf(text, style) {
  const key = style + text;
  let width = widths.get(key);
  if (width === undefined) {
    ruler.font = FONTS[style];
    width = ruler.measureText(text).width;
    widths.set(key, width);
  }
  return width;
}

function cutTo(text, style, width) {
  if (widthOf(text, style) <= width) return text;
  let [low, high] = [0, Math.min(text.length, 200)];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (widthOf(`${text.slice(0, middle)}…`, style) <= width) low = middle;
    else high = middle - 1;
  }
  return `${text.slice(0, low).replace(/[\ud800-\udbff]$/, "")}…`; // no half of a character
}

function titleOf(item) {
  if (item.kind === "block") return `${item.type || `${item.size / item.members.length} nodes`} × ${item.members.length}`;
  if (item.kind === "run") return `${item.size} nodes`;
  if (item.kind === "node") return item.module ? item.module[0] : shortName(item.type) + placeOf(item);
  return item.name;
}

// Which of several results a getitem takes.
function placeOf(item) {
  const place = item.type === "operator.getitem" ? pairsOf(item.node.args)[1] : null;
  return place && /^-?\d+$/.test(place[1]) ? ` [${place[1]}]` : "";
}

// How the members of a block stand to each other.
function rowOf(item) {
  return item.chain ? "in turn" : "side by side";
}

// The title over what is in an opened box.
function openTitleOf(item) {
  let text = titleOf(item);
  if (item.kind === "block" && item.type) text = innerOf(item).path.split(".").slice(-2).join(".");
  else if (item.kind === "block") text = innerOf(item).path;
  else if (item.kind === "module" && item.type) text = `${item.name}: ${item.type}`;
  return cutTo(text.replace(/\s+/g, " "), "name", 1.5 * WIDEST);
}

// The first lines, and how many more there are: "+1 more" would take as much room as the last one.
function someOf(lines, most) {
  return lines.length > most + 1 ? [...lines.slice(0, most), `+${lines.length - most} more`] : lines;
}

function linesOf(item) {
  const lines = [[titleOf(item), "name"]];
  if (item.kind === "block" || item.kind === "run") lines.push([item.name, "note"]);
  if (item.kind === "module" && item.type) lines.push([item.type, "note"]);
  if (item.kind === "module") lines.push([`${item.size.toLocaleString("en")} nodes`, "note"]);
  if (item.kind === "block") lines.push([`${item.size.toLocaleString("en")} nodes, ${rowOf(item)}`, "note"]);
  if (item.module) lines.push([shortName(item.type), "note"]);
  if (item.text) lines.push([item.text, "note"]);
  if (item.node) lines.push(...someOf(fatesOf(item), MOST_FATES).map((fate) => [fate, "note"]));
  if (item.subgraphs.length) lines.push([`runs ${item.subgraphs.map((inner) => inner.name).join(", ")}`, "note"]);
  const weights = weightsOf(item);
  const names = weights.map((weight) => weight.path.split(".").at(-1));
  const told = weights.map((weight, i) => {
    const isAlone = names.indexOf(names[i]) === names.lastIndexOf(names[i]);
    return `${(isAlone ? names[i] : weight.path) || weight.name} ${weight.shape}`.trim();
  });
  lines.push(...someOf(told, MOST_WEIGHTS).map((line) => [line, "weight"]));
  return lines.map(([text, style]) => ({ text: cutTo(text.replace(/\s+/g, " "), style, WIDEST), style }));
}

// The box of an item, opened or not: its size, and the pictures in it.
function boxOf(item) {
  const isPort = item.level.isPart && (item.kind === "input" || item.kind === "output");
  if (isPort) return { item, w: SPACE.port, h: item.kind === "input" ? SPACE.title : SPACE.pad, parts: [], isPort };
  item.lines ??= linesOf(item);
  if (item.open) return openBox(item);
  const sign = canOpen(item) ? 2 * SPACE.sign : 0; // beside the name, which stays in the middle
  const w = Math.max(52, widthOf(item.lines[0].text, "name") + sign, ...item.lines.map((line) => widthOf(line.text, line.style))) + 24;
  const h = 13 + item.lines.reduce((sum, line) => sum + LINE[line.style], 0);
  return { item, w: Math.ceil(w), h: h + (item.members.length > 1 ? SPACE.pile : 0), parts: [], isPort };
}

function openBox(item) {
  const parts = [];
  let [x, h] = [0, 0];
  for (const { name, level } of item.members.length ? [{ name: "", level: innerOf(item) }] : item.subgraphs) {
    const layout = layoutOf(level);
    const y = item.members.length ? (level.inputs.length ? 0 : SPACE.title) : 2 * SPACE.title;
    const below = item.members.length && level.outputs.length ? 0 : SPACE.pad;
    parts.push({ name, level, layout, x: x + SPACE.pad, y });
    x += Math.max(layout.w, name ? widthOf(name, "note") : 0) + 2 * SPACE.pad;
    h = Math.max(h, y + layout.h + below);
  }
  const title = widthOf(openTitleOf(item), "name") + (item.members.length > 1 ? 150 : 50);
  const more = Math.max(0, title - x) / 2;
  for (const part of parts) part.x += more;
  const ports = item.members.length ? parts[0].level.inputs.map(({ index }) => parts[0].layout.boxes[index]) : [];
  const last = Math.max(0, ...ports.map((port) => parts[0].x + port.x + port.w)); // it is not to come in under a button
  return { item, w: Math.ceil(Math.max(x + 2 * more, last + SPACE.title)), h, parts, isPort: false };
}

// The layout of a level: boxes by item, and lines. It is kept until something in it opens or closes.
function layoutOf(level) {
  if (level.layout) return level.layout;
  const boxes = level.items.map(boxOf);
  const { slots, routes } = level.shape;
  const [at, width] = middlesOf(level, boxes);
  const bands = bandsOf(level, boxes);
  boxes.forEach((box, i) => {
    const { top, bottom } = bands[slots[i].row];
    const y = !box.isPort ? (top + bottom - box.h) / 2 : box.item.kind === "input" ? top : bottom - box.h;
    box.x = Math.round(at.get(slots[i]) - box.w / 2);
    box.y = Math.round(y);
  });
  const lines = routes.flatMap((route) => waysOf(route, boxes).map((way) => lineOf(way, route, boxes, bands, at)));
  const h = bands.at(-1)?.bottom ?? 0;
  level.layout = { level, boxes, lines, w: width, h };
  goRound(level.layout, rowsOf(level, boxes, at));
  return level.layout;
}

// The middles of the slots, of which the left one is at the border, and the width of all.
function middlesOf(level, boxes) {
  const { rows } = level.shape;
  const size = (slot) => (slot.item < 0 ? 0 : boxes[slot.item].w);
  const x = new Map();
  const wider = Math.max(1, widthOf(PLANNED[1], "name") / PLANNED[0]);
  for (const row of rows) spread(row, size, x, (slot) => slot.x * wider);
  straighten(level, boxes, size, x);
  let [left, right] = [Infinity, 0];
  for (const [slot, middle] of x) left = Math.min(left, middle - size(slot) / 2);
  for (const [slot, middle] of x) {
    x.set(slot, middle - left);
    right = Math.max(right, middle - left + size(slot) / 2);
  }
  return [x, right];
}

// Top and bottom of each row.
function bandsOf(level, boxes) {
  let y = 0;
  return level.shape.rows.map((row) => {
    const h = row.reduce((most, slot) => (slot.item < 0 ? most : Math.max(most, boxes[slot.item].h)), 0);
    const band = { top: y, bottom: y + h };
    y += h + SPACE.rank;
    return band;
  });
}

// Give the slots of a row their middles: in order, without overlap, as near to those they want as can be: neighbours
// that would overlap move as one, to the mean of what they want (pools of adjacent violators).
function spread(row, size, x, want) {
  const pools = [];
  let offset = 0;
  row.forEach((slot, i) => {
    if (i > 0) {
      const gap = slot.item < 0 || row[i - 1].item < 0 ? SPACE.edge : SPACE.box;
      offset += (size(row[i - 1]) + size(slot)) / 2 + gap;
    }
    pools.push({ sum: want(slot) - offset, count: 1, slots: [[slot, offset]] });
    while (pools.length > 1 && pools.at(-2).sum / pools.at(-2).count > pools.at(-1).sum / pools.at(-1).count) {
      const last = pools.pop();
      const pool = pools.at(-1);
      pool.sum += last.sum;
      pool.count += last.count;
      for (const one of last.slots) pool.slots.push(one);
    }
  });
  for (const { sum, count, slots } of pools) {
    for (const [slot, by] of slots) x.set(slot, sum / count + by);
  }
}

// Bring neighbours of opened boxes into line with them, in a few sweeps down and up, with long edges straight; at last
// what stands alone over another straight over it, and what stands alone under another straight under it.
function straighten(level, boxes, size, x) {
  const { rows, routes } = level.shape;
  const links = linksOf(level, boxes);
  const upwards = [...rows].reverse();
  const wants = new Map(); // of the places where long edges pass
  const mean = (slot, near) => {
    if (!near.length) return x.get(slot);
    return near.reduce((sum, [other, by]) => sum + x.get(other) + by, 0) / near.length;
  };
  const alone = (slot, way, back) => {
    const near = links.get(slot)[way];
    return near.length === 1 && links.get(near[0][0])[back].length === 1 ? near : [];
  };
  const sweep = (order, near) => {
    for (const row of order) spread(row, size, x, (slot) => wants.get(slot) ?? mean(slot, near(slot)));
  };
  if (boxes.some((box) => box.parts.length)) { // else they are about where they were planned to be
    for (let round = 0; round < 3; round++) {
      sweep(rows, (slot) => links.get(slot).up);
      sweep(upwards, (slot) => links.get(slot).down);
    }
    for (let round = 0; round < 8; round++) {
      wantStraight(routes, x, wants);
      sweep(rows, (slot) => [...links.get(slot).up, ...links.get(slot).down]);
    }
  }
  for (let round = 0; round < 8; round++) {
    wantStraight(routes, x, wants);
    sweep(upwards, (slot) => alone(slot, "down", "up"));
    sweep(rows, (slot) => alone(slot, "up", "down"));
  }
}

// What the places where a long edge passes want: to stand in line with the one that had to give way most.
function wantStraight(routes, x, wants) {
  for (const { passed } of routes) {
    if (passed.length < 2) continue;
    const want = wants.get(passed[0]);
    const middle = want ?? passed.reduce((sum, slot) => sum + x.get(slot), 0) / passed.length;
    const most = passed.reduce((a, b) => (Math.abs(x.get(b) - middle) > Math.abs(x.get(a) - middle) ? b : a));
    for (const slot of passed) wants.set(slot, want === undefined ? middle : x.get(most));
  }
}

// For each slot those above and below that lines lead to, and how far beside them it would be straight.
function linksOf(level, boxes) {
  const { rows, routes, slots } = level.shape;
  const links = new Map(rows.flat().map((slot) => [slot, { up: [], down: [] }]));
  for (const route of routes) {
    if (route.turned) continue;
    for (const { from, to } of waysOf(route, boxes)) {
      const chain = [slots[route.source], ...route.passed, slots[route.target]];
      chain.slice(1).forEach((slot, i) => {
        const by = (i === 0 ? from : 0) - (slot === chain.at(-1) ? to : 0);
        links.get(slot).up.push([chain[i], by]);
        links.get(chain[i]).down.push([slot, -by]);
      });
    }
  }
  return links;
}

// The lines of an edge: one for each pair of points that its values go between, as an open box has several.
function waysOf(route, boxes) {
  const ways = new Map();
  for (let i = 0; i < route.ports.length; i += 2) {
    const from = portAt(boxes[route.source], route.ports[i], "outputs");
    const to = portAt(boxes[route.target], route.ports[i + 1], "inputs");
    const key = `${from} ${to}`;
    if (!ways.has(key)) ways.set(key, { from, to, ports: [] });
    ways.get(key).ports.push([route.ports[i], route.ports[i + 1]]);
  }
  return [...ways.values()];
}

// Where a value meets a box, from its middle.
function portAt(box, port, side) {
  const part = box.parts[0];
  if (!part || !box.item.members.length) return 0;
  const inner = part.layout.boxes[part.level[side][port]?.index];
  return inner ? part.x + inner.x + inner.w / 2 - box.w / 2 : 0;
}

// A line: points x, y one after the other; straight within rows, and bent between them.
function lineOf(way, route, boxes, bands, at) {
  const [source, target] = [boxes[route.source], boxes[route.target]];
  const from = [source.x + source.w / 2 + way.from, source.y + source.h];
  const to = [target.x + target.w / 2 + way.to, target.y];
  const { slots } = source.item.level.shape;
  const rows = [slots[route.source].row, slots[route.target].row];
  const points = [...from, from[0], bands[rows[0]].bottom];
  for (const slot of route.passed) points.push(at.get(slot), bands[slot.row].top, at.get(slot), bands[slot.row].bottom);
  points.push(to[0], bands[rows[1]].top, ...to);
  return { points, source, target, rows, turned: route.turned, ports: way.ports };
}

// What each row takes: its left and right side.
function rowsOf(level, boxes, at) {
  return level.shape.rows.map((slots) => slots.reduce(({ left, right }, slot) => {
    const half = slot.item < 0 ? 0 : boxes[slot.item].w / 2;
    return { left: Math.min(left, at.get(slot) - half), right: Math.max(right, at.get(slot) + half) };
  }, { left: Infinity, right: -Infinity }));
}

// Lead lines that go upwards beside what is between their ends, on the side that is nearer, the shorter ones inside of
// the longer: down, in a bend to the side, up, and in another bend to where they come down.
function goRound(layout, rows) {
  const turned = layout.lines.filter((line) => line.turned);
  let [left, right] = [0, layout.w];
  const length = ({ rows: [from, to], points: [x] }) => [Math.abs(from - to), Math.min(x, layout.w - x)];
  const inOrder = turned.map((line) => [length(line), line]).sort(([a], [b]) => a[0] - b[0] || a[1] - b[1]);
  for (const [, line] of inOrder) {
    const [x, y, , low, , high, endX, endY] = line.points;
    const passed = rows.slice(Math.min(...line.rows), Math.max(...line.rows) + 1);
    const sides = [Math.min(...passed.map((row) => row.left)) - SPACE.edge, Math.max(...passed.map((row) => row.right)) + SPACE.edge];
    const [near, far] = sides.map((side) => Math.abs(x - side) + Math.abs(endX - side));
    const side = near <= far ? sides[0] : sides[1];
    for (const row of passed) [row.left, row.right] = [Math.min(row.left, side), Math.max(row.right, side)];
    [left, right] = [Math.min(left, side - 2), Math.max(right, side + 2)];
    line.points = [x, y, x, low, side, low, side, high, endX, high, endX, endY];
  }
  layout.w = right - left;
  if (left === 0) return;
  for (const box of layout.boxes) box.x -= left;
  for (const line of layout.lines) line.points = line.points.map((number, i) => (i % 2 ? number : number - left));
}

// Forget the layouts of a level and of those around it.
function forget(level) {
  for (let at = level; at; at = at.parent) at.layout = null;
}
