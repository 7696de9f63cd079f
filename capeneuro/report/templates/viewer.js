// Of each viewer: what is packed in it, and planes drawn from that point by point.
const inflate = async text => new Uint8Array(await new Response(
  new Blob([Uint8Array.from(atob(text), c => c.charCodeAt(0))]).stream()
    .pipeThrough(new DecompressionStream("deflate"))).arrayBuffer());

async function view(box) {
  const about = JSON.parse(box.querySelector("script").textContent);
  const { shape, start, step, planes, ends, colors } = about;
  const below = await inflate(about.below), half = shape.map(n => n / 2);
  const choice = box.querySelector("select"), level = box.querySelector("[name=threshold]");
  const figures = [...box.querySelectorAll("figure")];
  const sliders = figures.map(one => one.querySelector("input"));
  let map, values, at;

  const index = (p, n) => (p[0] * n[1] + p[1]) * n[2] + p[2];
  const value = p => (values[index(p.map(x => x >> 1), half)] - 128) / 127 * map.largest;
  const threshold = () => level.value / 100 * map.largest;
  // Of the map's own place what the table says of it, not the nearest step.
  const mm = k => at[k] === map.at[k] ? map.mm[k] : Math.round(start[k] + at[k] * step);

  function draw() {
    const least = threshold();
    figures.forEach((figure, f) => {
      const [cut, i, j] = planes[f], canvas = figure.querySelector("canvas");
      const w = canvas.width = shape[i], h = canvas.height = shape[j], p = [...at];
      const image = new ImageData(w, h);
      for (let y = 0; y < h; y++) for (let x = 0; x < w; x++) {
        p[i] = x; p[j] = h - 1 - y;
        const v = value(p), shade = below[index(p, shape)];
        const crossed = (x === at[i] || p[j] === at[j]) && (x + y) % 2;
        let color = shade > 12 ? Array(3).fill(102 + 0.55 * shade) : [255, 255, 255];
        if (Math.abs(v) > least) color = colors[Math.round(127 + 127 * v / map.largest)];
        if (crossed) color = [0, 0, 0];
        image.data.set([...color, 255], 4 * (y * w + x));
      }
      canvas.getContext("2d").putImageData(image, 0, 0);
      sliders[f].value = at[cut];
      figure.querySelector("span").textContent =
        `${"xyz"[cut]} = ${mm(cut)} mm (left ${ends[i][0]}, right ${ends[i][1]})`;
    });
    level.nextElementSibling.textContent = least.toPrecision(2);
    box.querySelector(".value").textContent = `At (${[0, 1, 2].map(mm).join(", ")}) mm ` +
      `the map is about ${value(at).toPrecision(2)}; its largest magnitude is ${map.largest.toPrecision(3)}.`;
  }
  async function choose() {
    map = about.maps[choice.selectedIndex];
    values = await inflate(map.values);
    at = [...map.at];
    level.value = 100 * map.threshold / (map.largest || 1);
    draw();
  }
  choice.addEventListener("change", choose);
  level.addEventListener("input", draw);
  figures.forEach((figure, f) => {
    const [cut, i, j] = planes[f], canvas = figure.querySelector("canvas");
    sliders[f].addEventListener("input", () => { at[cut] = +sliders[f].value; draw(); });
    canvas.addEventListener("click", event => {
      const { width, height } = canvas.getBoundingClientRect();
      at[i] = Math.min(shape[i] - 1, Math.floor(event.offsetX / width * shape[i]));
      at[j] = Math.max(0, shape[j] - 1 - Math.floor(event.offsetY / height * shape[j]));
      draw();
    });
  });
  await choose();
  box.hidden = false;
}
// Where a browser cannot inflate, the pictures below say the same.
if ("DecompressionStream" in window) document.querySelectorAll(".viewer").forEach(view);
