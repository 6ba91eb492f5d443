// The picture as a file: what is opened and coloured now, whole and without marks of what is selected, as SVG or PNG.

const FRAME = { margin: 24, name: 34, between: 60 };
const MOST_PIXELS = { side: 8192, all: 3.2e7 }; // of a PNG, which browsers differ in
const STYLE = ["fillStyle", "strokeStyle", "lineWidth", "font", "textAlign", "dashes"];
const SIGNS = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };

// A text for XML, which can hold all its characters: _report_data.py has made the others visible.
function markupOf(text) {
  return text.replace(/[&<>"]/g, (sign) => SIGNS[sign]);
}

function short(number) {
  return `${Math.round(number * 10) / 10}`;
}

// A pen that writes SVG: as much of a canvas's as Painter uses, with one move of the origin behind each save.
class SvgPen {
  constructor() {
    this.out = [];
    this.kept = [];
    this.setLineDash([]);
  }

  save() {
    this.kept.push(STYLE.map((name) => this[name]));
  }

  translate(x, y) {
    this.out.push(`<g transform="translate(${short(x)} ${short(y)})">`);
  }

  restore() {
    const kept = this.kept.pop();
    STYLE.forEach((name, i) => { this[name] = kept[i]; });
    this.out.push("</g>");
  }

  // What a viewer shows under the pointer, of all that is drawn until `restore`.
  tell(text) {
    this.out.push(`<title>${markupOf(text)}</title>`);
  }

  setLineDash(lengths) {
    this.dashes = lengths.length ? ` stroke-dasharray="${lengths.join(" ")}"` : "";
  }

  beginPath() {
    this.path = [];
    this.filled = -1; // where the filled path is in what was written
  }

  moveTo(x, y) {
    this.path.push(`M${short(x)} ${short(y)}`);
  }

  lineTo(x, y) {
    this.path.push(`L${short(x)} ${short(y)}`);
  }

  bezierCurveTo(...points) {
    this.path.push(`C${points.map(short).join(" ")}`);
  }

  arc(x, y, radius) { // all round
    const [r, side] = [short(radius), short(2 * radius)];
    this.path.push(`M${short(x - radius)} ${short(y)}a${r} ${r} 0 1 1 ${side} 0a${r} ${r} 0 1 1 -${side} 0z`);
  }

  rect(x, y, w, h) {
    this.path.push(`M${short(x)} ${short(y)}h${short(w)}v${short(h)}h${short(-w)}z`);
  }

  roundRect(x, y, w, h, radius) {
    const r = Math.min(radius, w / 2, h / 2);
    const turn = (dx, dy) => `a${short(r)} ${short(r)} 0 0 1 ${short(dx)} ${short(dy)}`;
    const [across, down] = [short(w - 2 * r), short(h - 2 * r)];
    this.path.push(`M${short(x + r)} ${short(y)}h${across}${turn(r, r)}v${down}${turn(-r, r)}h-${across}${turn(-r, -r)}v-${down}${turn(r, -r)}z`);
  }

  fill() {
    this.filled = this.out.push(this.shape(colourOf("fill", this.fillStyle))) - 1;
  }

  stroke() {
    const line = `${colourOf("stroke", this.strokeStyle)} stroke-width="${short(this.lineWidth)}"${this.dashes}`;
    if (this.filled >= 0) this.out[this.filled] = this.shape(colourOf("fill", this.fillStyle) + line);
    else this.out.push(this.shape(` fill="none"${line}`));
  }

  shape(paint) {
    return `<path d="${this.path.join("")}"${paint}/>`;
  }

  fillRect(x, y, w, h) {
    this.beginPath();
    this.rect(x, y, w, h);
    this.fill();
  }

  // A text is as long as it is here, whatever fonts the viewer has.
  fillText(text, x, y) {
    if (!text) return;
    const [, weight, size] = /^(?:(\d+) )?([\d.]+)px/.exec(this.font);
    ruler.font = this.font;
    const facts = [
      `x="${short(x)}" y="${short(y)}" font-size="${size}"`, weight ? `font-weight="${weight}"` : "",
      this.textAlign === "center" ? 'text-anchor="middle"' : "", `textLength="${short(ruler.measureText(text).width)}" lengthAdjust="spacingAndGlyphs"`,
    ].filter(Boolean);
    this.out.push(`<text ${facts.join(" ")}${colourOf("fill", this.fillStyle)}>${markupOf(text)}</text>`);
  }
}

// A colour of the style sheet as attributes that all viewers know.
function colourOf(what, colour) {
  const [, plain, alpha] = /^(#[0-9a-f]{6})([0-9a-f]{2})$/i.exec(colour) ?? [null, colour, ""];
  return ` ${what}="${plain}"${alpha ? ` ${what}-opacity="${(parseInt(alpha, 16) / 255).toFixed(2)}"` : ""}`;
}

// What is told of an item by a tooltip.
function toldOf(item) {
  const { node } = item;
  if (node) return [fullName(node), node.target === node.name ? "" : node.target, node.shape].filter(Boolean).join("\n");
  const [title, row] = item.kind === "block" ? [titleOf(item), `, ${rowOf(item)}`] : [innerOf(item).path, ""];
  return [title, item.type, `${counted(item.size, "node")}${row}`].filter(Boolean).join("\n");
}

// All pictures of the page side by side: their size, and how to draw them with a pen.
function wholePicture(views) {
  const top = FRAME.margin + (views.length > 1 ? FRAME.name : 0);
  let x = FRAME.margin;
  let h = 0;
  const placed = views.map((view) => {
    const { layout } = view;
    const at = x;
    x += layout.w + FRAME.between;
    h = Math.max(h, layout.h);
    return { view, layout, at };
  });
  const size = { w: Math.ceil(x - FRAME.between + FRAME.margin), h: Math.ceil(top + h + FRAME.margin) };
  const draw = (pen, scale) => {
    const everything = { x0: -Infinity, y0: -Infinity, x1: Infinity, y1: Infinity };
    pen.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--back").trim();
    pen.fillRect(0, 0, size.w, size.h);
    for (const { view, layout, at } of placed) {
      const still = { program: view.program, way: view.way, selected: null, hover: null, hits: new Set(), isStill: true };
      const painter = new Painter(still, pen, scale);
      pen.save();
      pen.translate(at, top);
      if (views.length > 1) painter.text(cutTo(view.program.name, "name", layout.w), "name", 0, -FRAME.name / 2, "left", painter.ink.name);
      painter.level(layout, everything);
      pen.restore();
    }
  };
  return { size, draw };
}

function svgOf(views, title) {
  const { size: { w, h }, draw } = wholePicture(views);
  const pen = new SvgPen();
  draw(pen, 1);
  const font = markupOf(FONT);
  const head = `<svg xmlns="http://www.w3.org/2000/svg" width="${w}" height="${h}" viewBox="0 0 ${w} ${h}" role="img" font-family="${font}">`;
  return [head, `<title>${markupOf(title)}</title>`, ...pen.out, "</svg>", ""].join("\n");
}

// Twice as fine as on the page, or as fine as browsers can.
function pngOf(views) {
  const { size: { w, h }, draw } = wholePicture(views);
  const scale = Math.min(2, MOST_PIXELS.side / w, MOST_PIXELS.side / h, Math.sqrt(MOST_PIXELS.all / (w * h)));
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [Math.ceil(w * scale), Math.ceil(h * scale)];
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  draw(pen, scale);
  return new Promise((resolve) => { canvas.toBlob(resolve, "image/png"); });
}

// Give a file to the browser to save.
function saveAs(blob, name) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000); // the browser may read it later
}
