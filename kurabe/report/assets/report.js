// Makes the still pictures of the page interactive: the same charts, drawn by plotly.js from the
// JSON in the page. Without this script the pictures, their numbers and all tables stay as they are.
(function () {
  "use strict";
  const source = document.getElementById("kurabe-charts");
  if (!source || !window.Plotly) return;
  const charts = JSON.parse(source.textContent);
  const symbols = ["circle", "square", "diamond", "triangle-up", "triangle-down", "x", "hexagon"];
  const dashes = ["solid", "7px,3px", "2px,2px", "9px,3px,2px,3px", "12px,4px", "4px,4px", "1px,3px", "6px,2px,1px,2px,1px,2px"];
  const patterns = ["", "/", "\\", ".", "x", "-", "|", "+"];
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const touch = window.matchMedia("(pointer: coarse)").matches;

  // plotly.js reads a little HTML in every text; labels are text.
  const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  // Beside a narrow picture there is room for the figure and for what is uncertain in it.
  const brief = (text) => text.replace(/ \([^)]*\)/, "").replace(", up to ", " → ").replace(/\[too wide[^\]]*\]/, "[?]");

  function interval(points, ink, thickness) {
    // An interval that goes on has no ends across it: `beyond` draws what it has.
    const cap = points.some((point) => point.cut) ? 0 : thickness * 2.4;
    return {
      visible: points.some((point) => point.high !== undefined),
      type: "data", symmetric: false, color: ink, thickness, width: cap,
      array: points.map((point) => (point.high === undefined ? 0 : point.high - point.x)),
      arrayminus: points.map((point) => (point.low === undefined ? 0 : point.x - point.low)),
    };
  }

  // The ends of intervals of which one goes on beyond the picture: an arrow there, a dash elsewhere.
  function beyond(chart, series) {
    const ink = colour(series.mark === "whisker" ? "--ink" : "--k" + (chart.keys[series.key].style % 8));
    const cut = series.points.filter((point) => point.cut);
    const ends = cut.flatMap((point) => [
      { x: point.low, y: point.y, symbol: point.cut[0] ? "triangle-left" : "line-ns" },
      { x: point.high, y: point.y, symbol: point.cut[1] ? "triangle-right" : "line-ns" },
    ]);
    return ends.length === 0 ? [] : [{
      type: "scatter", mode: "markers", hoverinfo: "skip", showlegend: false, cliponaxis: false,
      x: ends.map((end) => end.x), y: ends.map((end) => end.y),
      marker: { symbol: ends.map((end) => end.symbol), size: 9, color: ink, line: { width: 1.4, color: ink } },
    }];
  }

  function trace(chart, series, narrow) {
    const key = chart.keys[series.key];
    const ink = colour("--k" + (key.style % 8));
    const points = series.points;
    const common = {
      name: plain(key.name), showlegend: false, visible: !key.hidden,
      hoverinfo: "text", hovertext: points.map((point) => plain(point.text)),
      hoverlabel: { align: "left" },
    };
    const bars = (marker) => Object.assign(common, {
      type: "bar", orientation: "h", width: 0.64,
      x: points.map((point) => point.x - (point.low || 0)),
      base: points.map((point) => point.low || 0),
      y: points.map((point) => point.y),
      marker,
    });
    const lines = { line: { color: ink, dash: dashes[key.style % 8], width: 2 } };
    const marker = (size, opacity) => ({
      marker: { color: ink, size, opacity, symbol: symbols[key.style % 7], line: { width: 0 } },
    });
    const place = { type: "scatter", x: points.map((point) => point.x), y: points.map((point) => point.y) };
    switch (series.mark) {
      case "bars": return bars({
        color: ink, line: { width: 1, color: colour("--paper") },
        pattern: chart.legend ? { shape: patterns[key.style % 8], size: 6, solidity: 0.18, fgcolor: colour("--paper"), fillmode: "overlay" } : {},
      });
      case "hatched": return bars({
        color: colour("--paper"), line: { width: 1.4, color: ink },
        pattern: { shape: "/", size: 6, solidity: 0.3, fgcolor: ink, bgcolor: colour("--paper"), fillmode: "replace" },
      });
      case "line": return Object.assign(common, place, lines, { mode: "lines" });
      case "faint": return Object.assign(common, place, { mode: "lines", opacity: 0.3, line: { color: ink, width: 1, dash: lines.line.dash } });
      case "steps": return Object.assign(common, place, lines, marker(8, 1), { mode: "lines+markers" });
      case "dots": return Object.assign(common, place, marker(7, 0.55), { mode: "markers" });
      case "hollow": return Object.assign(common, place, {
        mode: "markers",
        marker: { symbol: symbols[key.style % 7] + "-open", size: 11, color: ink, line: { width: 2, color: ink } },
        error_x: interval(points, ink, 2.5),
      });
      case "whisker": return Object.assign(common, place, {
        mode: "markers", hoverinfo: "skip", marker: { size: 1, opacity: 0 },
        error_x: interval(points, colour("--ink"), 1.4),
      });
      case "label": return Object.assign(common, place, {
        mode: "text", hoverinfo: "skip", cliponaxis: false, textposition: "middle right",
        // Far enough away for an arrow or a circle at the end.
        text: points.map((point) => "\u00a0\u00a0\u00a0" + plain(narrow ? brief(point.text) : point.text)),
        textfont: { size: 11, color: colour("--ink") },
      });
      case "ring": return Object.assign(common, place, { mode: "markers", marker: { symbol: "circle-open", size: 15, color: colour("--ink"), line: { width: 2 } } });
      case "small-ring": return Object.assign(common, place, { mode: "markers", marker: { symbol: "circle-open", size: 9, color: colour("--ink"), line: { width: 1.2 } } });
      case "crossed-ring": return Object.assign(common, place, { mode: "markers", marker: { symbol: "circle-x-open", size: 9, color: colour("--ink"), line: { width: 1.2 } } });
      case "interval": return Object.assign(common, place, marker(13, 1), {
        mode: "markers",
        error_x: interval(points, ink, 2.5),
      });
    }
    return Object.assign(common, place, { mode: "markers" });
  }

  function axis(data, narrow) {
    const log = data.logarithmic;
    // Beside a narrow picture what follows the last comma goes first, unless it tells two apart.
    const short = (text) => (text.length > 13 ? text.replace(/, [^,]*$/, "") : text);
    const names = data.ticks.map((tick) => short(tick.text));
    const cut = (text) => {
      if (!narrow) return text;
      const alone = names.indexOf(short(text)) === names.lastIndexOf(short(text));
      const [front, end, room] = alone ? [short(text), "", 13] : [short(text), text.slice(short(text).length), 18];
      return front.length + end.length > room ? front.slice(0, Math.max(room - end.length - 1, 4)) + "…" + end : front + end;
    };
    const found = {
      title: { text: plain(data.title), font: { size: 12, color: colour("--faint") }, standoff: 8 },
      type: log ? "log" : "linear", range: data.range.map((end) => (log ? Math.log10(end) : end)),
      gridcolor: colour("--rule"), linecolor: colour("--faint"), zeroline: false, automargin: true,
      tickfont: { size: 12, color: colour("--faint") },
    };
    if (data.fixed) {
      found.tickmode = "array";
      found.tickvals = data.ticks.map((tick) => tick.at);
      found.ticktext = data.ticks.map((tick) => plain(cut(tick.text)));
    }
    return found;
  }

  function layout(chart, width) {
    const y = axis(chart.y, width < 520);
    const rows = chart.y.fixed && !chart.y.logarithmic;
    if (rows) y.showgrid = false;
    const shapes = [], annotations = [];
    // Lines lie over bars, which would hide them.
    const layer = chart.series.every((series) => series.mark === "bars") ? "above" : "below";
    for (const guide of chart.guides) {
      if (guide.kind === "band") {
        shapes.push({ type: "rect", layer: "below", xref: "x", yref: "paper", x0: guide.from, x1: guide.to, y0: 0, y1: 1, fillcolor: colour("--rule"), opacity: 0.55, line: { width: 0 } });
      } else if (guide.kind === "level") {
        shapes.push({ type: "line", layer, xref: "paper", yref: "y", x0: 0, x1: 1, y0: guide.y, y1: guide.y, line: { color: colour("--ink"), width: 1 } });
      } else {
        shapes.push({ type: "line", layer, xref: "x", yref: "paper", x0: guide.x, x1: guide.x, y0: 0, y1: 1, line: { color: colour("--ink"), width: 1 } });
        const at = (x) => (chart.x.logarithmic ? Math.log10(x) : x);
        const [start, end] = chart.x.range.map(at);
        // Its name goes to the left where there is no room before the buttons.
        const room = (1 - (at(guide.x) - start) / (end - start)) * width;
        annotations.push({ text: plain(guide.text), xref: "x", yref: "paper", x: at(guide.x), y: 1, yanchor: "bottom", xanchor: room < 140 ? "right" : "left", showarrow: false, font: { size: 11, color: colour("--faint") } });
      }
    }
    return {
      height: chart.height + 12, margin: { l: rows ? 10 : 50, r: 34, t: 20, b: 46 }, barmode: "overlay",
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false,
      font: { family: colour("--sans"), color: colour("--ink") }, hovermode: "closest",
      dragmode: touch ? false : "zoom",
      modebar: { orientation: "v", bgcolor: "rgba(0,0,0,0)", color: colour("--faint"), activecolor: colour("--ink") }, xaxis: axis(chart.x, false), yaxis: y, shapes, annotations,
    };
  }

  const config = {
    responsive: true, displaylogo: false, doubleClick: "reset", showSendToCloud: false,
    plotlyServerURL: "", modeBarButtons: [["zoomIn2d", "zoomOut2d", "resetScale2d", "toImage"]],
  };

  function draw(figure) {
    const chart = charts[Number(figure.dataset.chart)];
    const still = figure.querySelector(".still"), live = figure.querySelector(".live");
    live.hidden = false;
    still.hidden = true;
    const shown = chart.keys.map((key) => !key.hidden);
    const narrow = live.clientWidth < 520;
    const drawn = (series) => [trace(chart, series, narrow), ...beyond(chart, series)];
    const traces = chart.series.flatMap((series) => drawn(series).map((one) => Object.assign(one, { visible: shown[series.key] })));
    Plotly.react(live, traces, layout(chart, live.clientWidth), config);
    live.querySelectorAll(".modebar-btn").forEach((button) => button.setAttribute("tabindex", "-1"));
  }

  // A hidden contender is taken out of every chart that names it in its legend.
  const buttons = [];
  function toggle(group, name, hidden, first) {
    const changed = buttons.filter((entry) => entry.key.group === group && entry.key.name === name);
    changed.forEach((entry) => {
      entry.key.hidden = hidden;
      entry.button.setAttribute("aria-pressed", String(!hidden));
    });
    draw(first);
    soon(changed.map((entry) => entry.figure).filter((figure) => figure !== first && drawn.has(figure)), draw);
  }

  function legend(figure) {
    const chart = charts[Number(figure.dataset.chart)];
    figure.querySelectorAll(".legend [data-key]").forEach((entry) => {
      const button = document.createElement("button");
      const key = chart.keys[Number(entry.dataset.key)];
      button.type = "button";
      button.innerHTML = entry.innerHTML;
      button.setAttribute("aria-pressed", String(!key.hidden));
      button.title = "show or hide in all charts";
      button.addEventListener("click", () => toggle(key.group, key.name, !key.hidden, figure));
      buttons.push({ key, button, figure });
      entry.replaceWith(button);
    });
  }

  // One after the other, so that the page answers in between.
  function soon(figures, act) {
    setTimeout(function next() {
      const figure = figures.shift();
      if (!figure) return;
      act(figure);
      setTimeout(next, 20);
    }, 20);
  }

  const figures = Array.from(document.querySelectorAll("figure[data-chart]"));
  const drawn = new Set();
  function drawOnce(figure) {
    if (drawn.has(figure)) return;
    drawn.add(figure);
    draw(figure);
  }
  // What comes into view is drawn first, the rest while the reader reads; what is folded away waits
  // until it is asked for.
  const watcher = new IntersectionObserver((entries) => {
    entries.filter((entry) => entry.isIntersecting).forEach((entry) => drawOnce(entry.target));
  }, { rootMargin: "400px 0px" });
  figures.forEach((figure) => { legend(figure); watcher.observe(figure); });
  soon(figures.filter((figure) => !figure.closest("details:not([open])")), drawOnce);

  // What need not be scrolled is no stop on the way of the Tab key.
  const fits = new ResizeObserver((entries) => entries.forEach(({ target }) => {
    if (target.scrollWidth > target.clientWidth) target.setAttribute("tabindex", "0");
    else target.removeAttribute("tabindex");
  }));
  document.querySelectorAll(".scroll").forEach((element) => fits.observe(element));

  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    drawn.forEach(draw);
  });
})();
