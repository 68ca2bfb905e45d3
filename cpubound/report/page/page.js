"use strict";

const { config, charts, legend_pixels } = JSON.parse(document.getElementById("charts").textContent);

// Draws a panel as wide as its place; colours are the page's own, so that a theme needs no redraw.
async function draw(place) {
  const { specs, square } = charts[place.dataset.chart];
  const spec = structuredClone(specs[Number(place.dataset.panel)]);
  const width = place.clientWidth;
  const columns = Math.max(1, Math.floor(width / legend_pixels));
  spec.config = { ...config, legend: { ...config.legend, columns } };
  if (square) spec.height = width - 48;
  await vegaEmbed(place, spec, { actions: false, ast: true, renderer: "svg", tooltip: { theme: "custom" } });
  // The place itself says what the chart shows, and the table below has its numbers.
  place.querySelector("svg").setAttribute("aria-hidden", "true");
}

async function drawAll() {
  for (const place of document.querySelectorAll(".panel")) await draw(place);
  document.documentElement.dataset.drawn = "yes";
}

function changeTheme() {
  const root = document.documentElement;
  const systemIsDark = matchMedia("(prefers-color-scheme: dark)").matches;
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : systemIsDark;
  root.dataset.theme = isDark ? "light" : "dark";
}

function download() {
  const text = document.getElementById("document").textContent;
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  link.download = "cpubound-report.json";
  link.click();
  URL.revokeObjectURL(link.href);
}

document.getElementById("theme").addEventListener("click", changeTheme);
document.getElementById("download").addEventListener("click", download);
drawAll();
