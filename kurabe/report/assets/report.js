// Makes the pictures of the page answer: what is pointed at is said, a part can be enlarged, and a press on a name
// in a legend hides it in every picture. Works on the SVG in the page alone; without this script everything is there.
// Places are shares of a plot, 0 to 1 from the left and from the top.
(function () {
  "use strict";
  const NEAR_PX = 32, DRAG_PX = 6, NARROWEST = 0.001;

  function element(name, className, parent) {
    const made = document.createElement(name);
    made.className = className;
    parent.append(made);
    return made;
  }

  // What can be pointed at: where it is, and what is said of it.
  function marksOf(zoom) {
    const marks = [];
    const share = (node, name) => parseFloat(node.getAttribute(name)) / 100;
    for (const series of zoom.querySelectorAll("[data-key]")) {
      for (const node of series.querySelectorAll("use, rect, path[data-says]")) {
        if (node.dataset.says !== undefined) {
          const places = node.getAttribute("d").match(/-?\d+/g).map((number) => number / 10000);
          node.dataset.says.split("\n").forEach((said, at) => {
            marks.push({ x: places[2 * at], y: places[2 * at + 1], text: node.dataset.who + said, series });
          });
          continue;
        }
        const title = node.querySelector("title");
        if (!title) continue;
        const [x, y] = [share(node, "x"), share(node, "y")];
        const [width, height] = [share(node, "width") || 0, share(node, "height") || 0];
        marks.push({ x: x + width, y: y + height / 2, left: x, width, top: y, height, text: title.textContent, series });
        // The browser would say it a second time.
        title.remove();
      }
    }
    return marks;
  }

  // Marks at multiples of 1, 2 or 5 times a power of ten, on a long logarithmic axis at these.
  function ticks(kind, low, high) {
    const found = [];
    if (kind !== "linear" && Math.log10(high / low) > 0.8) {
      for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
        for (const factor of [1, 2, 5]) found.push(factor * 10 ** power);
      }
    } else {
      const rough = (high - low) / 6, power = 10 ** Math.floor(Math.log10(rough));
      const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= rough) || rough;
      for (let count = Math.ceil(low / step); count * step <= high; count++) found.push(count * step);
    }
    return found.filter((value) => value >= low && value <= high);
  }

  function label(kind, value) {
    const units = kind === "time" ? [[1e9, " s"], [1e6, " ms"], [1e3, " µs"], [1, " ns"]] : [[1, ""]];
    const [size, unit] = units.find(([least]) => Math.abs(value) >= least * 0.999999) || units[units.length - 1];
    return Number((value / size).toPrecision(6)) + unit;
  }

  // The labels of an axis for the part of it that is shown.
  function axis(area, name, ends, shown) {
    const group = area.querySelector(":scope > g." + name);
    const [kind, low, high] = ends.split(" ").map((word, at) => (at ? Number(word) : word));
    const whole = shown[0] === 0 && shown[1] === 1;
    const place = (share) => (share - shown[0]) / (shown[1] - shown[0]);
    const put = (node, share, hidden) => {
      for (const at of node.tagName === "line" ? [name + "1", name + "2"] : [name]) node.setAttribute(at, place(share) * 100 + "%");
      node.style.display = hidden || place(share) < -1e-6 || place(share) > 1 + 1e-6 ? "none" : "";
    };
    group.querySelectorAll(".made").forEach((node) => node.remove());
    for (const node of group.querySelectorAll("line, text")) {
      const at = name + (node.tagName === "line" ? "1" : "");
      if (node.dataset.at === undefined) node.dataset.at = node.getAttribute(at);
      const named = !kind || node.matches(".guide, .above");
      put(node, parseFloat(node.dataset.at) / 100, !whole && !named);
    }
    if (whole || !kind) return;
    const curve = kind === "linear" ? [(value) => value, (value) => value] : [Math.log, Math.exp];
    const [from, to] = [low, high].map(curve[0]);
    const up = (share) => (name === "y" ? 1 - share : share);
    const value = (share) => curve[1](from + up(share) * (to - from));
    const [line, text] = ["line", "text"].map((one) => group.querySelector(one + ":not(.guide)"));
    for (const at of ticks(kind, ...[value(shown[0]), value(shown[1])].sort((one, other) => one - other))) {
      for (const kin of [line, text]) {
        if (!kin) continue;
        const made = kin.cloneNode(false);
        made.classList.add("made");
        if (kin === text) made.textContent = label(kind, at);
        put(made, up((curve[0](at) - from) / (to - from)), false);
        group.append(made);
      }
    }
  }

  function answer(plot) {
    const area = plot.querySelector("svg"), zoom = plot.querySelector(".zoom");
    const tip = element("div", "tip", plot), box = element("div", "box", plot);
    const back = element("button", "back", plot), status = element("p", "status", plot);
    const rows = plot.classList.contains("rows");
    let shown = { x: [0, 1], y: [0, 1] }, marks = null, chosen = -1, start = null;
    tip.hidden = box.hidden = back.hidden = true;
    back.type = "button";
    back.textContent = "Whole picture";
    status.setAttribute("aria-live", "polite");
    area.setAttribute("tabindex", "0");
    area.setAttribute("aria-roledescription", "chart; arrow keys for its points, + and - to zoom");
    const known = () => (marks = marks || marksOf(zoom));
    const is_shown = (mark) => mark.series.style.display !== "none";

    function show(part) {
      shown = part;
      const size = (name) => shown[name][1] - shown[name][0];
      for (const [name, extent] of [["x", "width"], ["y", "height"]]) {
        zoom.setAttribute(name, -100 * shown[name][0] / size(name) + "%");
        zoom.setAttribute(extent, 100 / size(name) + "%");
        axis(area, name, plot.dataset[name], shown[name]);
      }
      back.hidden = size("x") === 1 && size("y") === 1;
      plot.classList.toggle("part", !back.hidden);
      point(-1);
    }

    // Where a share of the whole is in the area, in px, and how large the area is.
    function place(x, y) {
      const { width, height } = area.getBoundingClientRect();
      const of = (share, [from, to]) => (share - from) / (to - from);
      // On a narrow screen the marks of a row lie below its label.
      const shift = parseFloat(getComputedStyle(area).getPropertyValue("--shift")) || 0;
      return [of(x, shown.x) * width, of(y, shown.y) * height + shift, width, height];
    }

    function nearest(x, y) {
      let best = -1, least = NEAR_PX;
      known().forEach((mark, at) => {
        if (!is_shown(mark)) return;
        const [right, middle, width, height] = place(mark.x, mark.y);
        let distance = Math.hypot(right - x, middle - y);
        if (mark.width !== undefined && mark.width > 0) {
          const [left, top] = place(mark.left, mark.top), bottom = 2 * middle - top;
          distance = Math.hypot(Math.max(left - x, 0, x - right), Math.max(top - y, 0, y - bottom));
        }
        if (right > -1 && right < width + 1 && middle > -1 && middle < height + 1 && distance < least) [best, least] = [at, distance];
      });
      return best;
    }

    function point(at) {
      chosen = at;
      tip.hidden = at < 0;
      if (at < 0) return;
      const mark = known()[at], [x, y] = place(mark.x, mark.y), inner = area.getBoundingClientRect(), outer = plot.getBoundingClientRect();
      tip.textContent = mark.text;
      const left = inner.left - outer.left + x, top = inner.top - outer.top + y;
      tip.style.left = Math.max(0, Math.min(left - tip.offsetWidth / 2, outer.width - tip.offsetWidth)) + "px";
      tip.style.top = top - tip.offsetHeight - 10 + "px";
    }

    const at = (event) => {
      const inner = area.getBoundingClientRect();
      return [event.clientX - inner.left, event.clientY - inner.top, inner.width, inner.height];
    };
    const drawn = (event) => {
      const [x, y, width, height] = at(event), [fromX, fromY] = start;
      const clamp = (value, most) => Math.max(0, Math.min(value, most));
      const span = (one, other, most) => [one, other].map((value) => clamp(value, most) / most).sort((a, b) => a - b);
      const is_y = !rows && Math.abs(y - fromY) > 4 * DRAG_PX, is_x = rows || Math.abs(x - fromX) > 4 * DRAG_PX || !is_y;
      return { x: is_x ? span(fromX, x, width) : [0, 1], y: is_y ? span(fromY, y, height) : [0, 1] };
    };

    area.addEventListener("pointerdown", (event) => {
      if (event.button === 0) start = at(event);
    });
    area.addEventListener("pointermove", (event) => {
      const [x, y] = at(event);
      if (start && (!box.hidden || Math.hypot(x - start[0], y - start[1]) > DRAG_PX)) {
        if (box.hidden) area.setPointerCapture(event.pointerId);
        const part = drawn(event), inner = area.getBoundingClientRect(), outer = plot.getBoundingClientRect();
        box.hidden = false;
        box.style.left = inner.left - outer.left + part.x[0] * inner.width + "px";
        box.style.top = inner.top - outer.top + part.y[0] * inner.height + "px";
        box.style.width = (part.x[1] - part.x[0]) * inner.width + "px";
        box.style.height = (part.y[1] - part.y[0]) * inner.height + "px";
        point(-1);
      } else if (event.pointerType === "mouse") {
        point(nearest(x, y));
      }
    });
    area.addEventListener("pointerup", (event) => {
      if (start && !box.hidden) zoomTo(drawn(event));
      else if (start) point(nearest(...at(event)));
      start = null;
      box.hidden = true;
    });
    area.addEventListener("pointercancel", () => { start = null; box.hidden = true; });
    area.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && point(-1));
    area.addEventListener("blur", () => point(-1));
    area.addEventListener("dblclick", () => show({ x: [0, 1], y: [0, 1] }));
    back.addEventListener("click", () => { show({ x: [0, 1], y: [0, 1] }); area.focus(); });

    // Shares of what is shown become shares of the whole.
    function zoomTo(part) {
      const of = (name) => part[name].map((share) => shown[name][0] + share * (shown[name][1] - shown[name][0]));
      const wanted = { x: of("x"), y: of("y") };
      if (wanted.x[1] - wanted.x[0] > NARROWEST && wanted.y[1] - wanted.y[0] > NARROWEST) show(wanted);
    }

    // With Ctrl alone, as maps have it: without, the wheel moves the page.
    area.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      const [x, y, width, height] = at(event), factor = event.deltaY < 0 ? 0.8 : 1.25;
      const around = ([from, to], share) => {
        const size = Math.min(1, (to - from) * factor), low = from + share * (to - from - size);
        return [0, size].map((add) => Math.max(0, Math.min(low, 1 - size)) + add);
      };
      const wanted = { x: around(shown.x, x / width), y: rows ? shown.y : around(shown.y, y / height) };
      if (wanted.x[1] - wanted.x[0] > NARROWEST) show(wanted);
    }, { passive: false });

    area.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      const mark = known()[chosen];
      if (step) {
        let next = chosen;
        do next += step; while (known()[next] && !is_shown(known()[next]));
        if (known()[next]) point(next), status.textContent = known()[next].text;
      } else if (event.key === "+" || event.key === "-") {
        const half = (shown.x[1] - shown.x[0]) * (event.key === "+" ? 0.25 : 1);
        const middle = mark ? mark.x : (shown.x[0] + shown.x[1]) / 2, kept = chosen;
        if (half > NARROWEST) show({ x: [Math.max(0, middle - half), Math.min(1, middle + half)], y: shown.y });
        point(kept);
      } else if (event.key === "Escape") {
        show({ x: [0, 1], y: [0, 1] });
      } else return;
      event.preventDefault();
    });
  }
  document.querySelectorAll(".plot").forEach(answer);

  // A name that is pressed is hidden in every picture that has it in its legend.
  const entries = Array.from(document.querySelectorAll(".legend [data-key]"), (entry) => {
    const button = document.createElement("button"), figure = entry.closest("figure");
    button.type = "button";
    button.innerHTML = entry.innerHTML;
    button.title = "show or hide in all charts";
    button.setAttribute("aria-pressed", "true");
    const { key, group } = entry.dataset, name = group + " " + entry.textContent;
    button.addEventListener("click", () => {
      const shown = button.getAttribute("aria-pressed") !== "true";
      entries.filter((one) => one.name === name).forEach((one) => {
        one.button.setAttribute("aria-pressed", String(shown));
        one.figure.querySelectorAll(`[data-key="${one.key}"]`).forEach((series) => (series.style.display = shown ? "" : "none"));
      });
    });
    entry.replaceWith(button);
    return { button, figure, key, name };
  });

  // What need not be scrolled is no stop on the way of the Tab key.
  function find_stops() {
    for (const region of document.querySelectorAll(".scroll")) {
      if (region.scrollWidth > region.clientWidth) region.setAttribute("tabindex", "0");
      else region.removeAttribute("tabindex");
    }
  }
  find_stops();
  window.addEventListener("resize", find_stops);
  // It does not bubble.
  document.addEventListener("toggle", find_stops, true);
})();
