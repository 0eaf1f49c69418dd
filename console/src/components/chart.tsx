import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { dateAndTime } from "../format";
import { SCHEME_CHANGED } from "./scheme";

export interface Line {
  label: string;
  values: (number | null)[];
  /** The name of a custom property of the style sheet. */
  color: string;
}

interface ChartProps {
  title: string;
  times: number[];
  lines: Line[];
  format: (value: number) => string;
}

const HEIGHT = 160;

/** The least time that a chart shows: without it, a single point has an axis of years. */
const LEAST_SECONDS = 60;

/** Lines over time. */
export function Chart({ title, times, lines, format }: ChartProps) {
  const frame = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const data = useRef<uPlot.AlignedData>([[]]);
  data.current = [times, ...lines.map((line) => line.values)];
  const labels = lines.map((line) => line.label).join();

  // `labels` stands for the lines; new values do not need a new chart.
  useEffect(() => {
    const element = frame.current;
    if (element === null) return;
    function draw() {
      if (element === null) return;
      plot.current?.destroy();
      plot.current = new uPlot(options(element, lines, format), data.current, element);
    }
    draw();
    const observer = new ResizeObserver(() => plot.current?.setSize({ width: element.clientWidth, height: HEIGHT }));
    observer.observe(element);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", draw);
    window.addEventListener(SCHEME_CHANGED, draw);
    return () => {
      scheme.removeEventListener("change", draw);
      window.removeEventListener(SCHEME_CHANGED, draw);
      observer.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [labels]);
  // `data` changes with them.
  useEffect(() => plot.current?.setData(data.current), [times, lines]);

  return (
    <figure class="chart">
      <figcaption>{title}</figcaption>
      <div ref={frame} role="img" aria-label={`${title}: ${lines.map((line) => latest(line, format)).join(", ")}`} />
    </figure>
  );
}

function latest(line: Line, format: (value: number) => string): string {
  const value = line.values.at(-1) ?? null;
  return `${line.label} ${value === null ? "unknown" : format(value)}`;
}

function options(element: HTMLElement, lines: Line[], format: (value: number) => string): uPlot.Options {
  const color = (name: string) => resolvedColor(element, name);
  const axis = {
    stroke: color("--quiet"),
    grid: { stroke: color("--border"), width: 1 },
    ticks: { stroke: color("--border"), width: 1 },
  };
  return {
    width: element.clientWidth,
    height: HEIGHT,
    axes: [axis, { ...axis, size: 64, values: (_plot, values) => values.map(format) }],
    scales: {
      x: { range: (_plot, low, high) => [Math.min(low ?? 0, (high ?? 0) - LEAST_SECONDS), high ?? 0] },
      y: { range: (_plot, _low, high) => [0, Math.max(high * 1.1, 1e-3)] },
    },
    series: [
      {
        value: (_plot, time) => (time === null ? "" : dateAndTime(new Date(time * 1000))),
      },
      ...lines.map((line) => ({
        label: line.label,
        stroke: color(line.color),
        width: 2,
        value: (_plot: uPlot, value: number | null) => (value === null ? "–" : format(value)),
      })),
    ],
  };
}

/** Returns the color of a custom property in the current color scheme. A canvas does not know `light-dark()`. */
function resolvedColor(element: HTMLElement, name: string): string {
  const before = element.style.color;
  element.style.color = `var(${name})`;
  const color = getComputedStyle(element).color;
  element.style.color = before;
  return color;
}
