import { useState } from "preact/hooks";
import { appPath } from "../api/client";
import { useEvents, usePolled } from "../api/hooks";
import type { Edge, LiveApp, Series } from "../api/types";
import { Chart } from "../components/chart";
import { ExecutorGraph, ReplicaTable } from "../components/executor_graph";
import { Figure, MissingGateways, Problem, State } from "../components/notices";
import { Table } from "../components/table";
import { bytes, dollars, number, rate, seconds, share } from "../format";
import { href } from "../routes";
import { useIsAdmin } from "../session";
import { AppActions } from "./app_actions";
import { PlanSection } from "./plan";

const SERIES_SECONDS = 10;
const LONG_SERIES_SECONDS = 60;
const SERIES_STEPS = 240;

/** An app: its executor graph with live figures, its paths and plan, and charts of the last hour. */
export function AppView({ name }: { name: string }) {
  const { value: live, error, deleted } = useEvents<LiveApp>(`${appPath(name)}/live/events`, "live");
  return (
    <>
      <AppHeading name={name} current="app" phase={deleted ? undefined : live?.app.phase} />
      <Problem error={deleted ? `The app ${name} has been deleted.` : error} />
      {live && !deleted && <Content live={live} />}
      {live === null && !error && !deleted && <p class="quiet">Reading…</p>}
      {!deleted && <Charts name={name} />}
    </>
  );
}

/** The name of an app, and links to its views. */
export function AppHeading({ name, current, phase }: { name: string; current: string; phase?: string }) {
  const isAdmin = useIsAdmin();
  const links = [
    ["app", "Graph", href({ view: "app", name })],
    ["requests", "Requests", href({ view: "requests", app: name })],
    ["logs", "Logs and events", href({ view: "logs", name })],
    ...(isAdmin ? [["playground", "Playground", href({ view: "playground", app: name })]] : []),
  ] as const;
  return (
    <div class="row">
      <h1>{name}</h1>
      {phase && <State name={phase} />}
      <nav aria-label={`Views of ${name}`} class="tabs">
        {links.map(([view, label, address]) => (
          <a key={view} href={address} aria-current={view === current ? "page" : undefined}>
            {label}
          </a>
        ))}
      </nav>
    </div>
  );
}

function Content({ live }: { live: LiveApp }) {
  const { app } = live;
  const isAdmin = useIsAdmin();
  return (
    <>
      <MissingGateways gateways={live.gateways} />
      {app.message && <p class="warning">{app.message}</p>}
      {app.suspended && <p class="error">{app.suspended}</p>}
      {isAdmin && <AppActions live={live} />}
      <dl class="figures">
        <Figure label="Requests" value={rate(app.requests_per_second)} />
        <Figure label="Running" value={number(app.running)} />
        <Figure label="TTFT p50" value={seconds(app.ttft_seconds?.p50)} />
        <Figure label="TTFT p99" value={seconds(app.ttft_seconds?.p99)} />
        <Figure label="TBT p50" value={seconds(app.tbt_seconds?.p50)} />
        <Figure label="Tokens" value={rate(app.generation_tokens_per_second)} />
        <Figure label="Errors" value={`${number(app.errors_total)} of ${number(app.requests_total)}`} />
        <Figure label="Replicas ready" value={`${app.ready}/${app.wanted}`} />
        <Figure label="GPUs" value={number(app.gpus)} />
        {app.dollars_per_hour !== null && <Figure label="Cost" value={dollars(app.dollars_per_hour)} />}
        {app.targets.map((target) => (
          <Figure
            key={target.target}
            label={`${target.target} ≤ ${seconds(target.seconds)}`}
            value={share(target.attainment)}
          />
        ))}
      </dl>
      <section aria-labelledby="graph">
        <h2 id="graph">Executors</h2>
        <ExecutorGraph label="Executor graph" nodes={live.nodes} edges={live.edges} />
        <details>
          <summary>Replicas and edges as tables</summary>
          <ReplicaTable nodes={live.nodes} />
          <EdgeTable edges={live.edges} />
        </details>
      </section>
      <Paths live={live} />
      <PlanSection live={live} />
    </>
  );
}

function EdgeTable({ edges }: { edges: Edge[] }) {
  return (
    <Table label="Edges" columns={["From", "To", "Invocations", "Rate", "Bytes per second", "Transfer"]}>
      {edges.map((edge) => (
        <tr key={`${edge.source} ${edge.target}`}>
          <td>{edge.source ?? "gateway"}</td>
          <td>{edge.target}</td>
          <td>{number(edge.invocations_total)}</td>
          <td>{rate(edge.invocations_per_second)}</td>
          <td>{bytes(edge.bytes_per_second)}</td>
          <td>{Object.keys(edge.kinds).join(", ").replaceAll("_", " ")}</td>
        </tr>
      ))}
    </Table>
  );
}

/** The shares of the paths, as planned and as requests have taken them. */
function Paths({ live }: { live: LiveApp }) {
  if (live.paths.length < 2 && live.planned_paths.length === 0) return null;
  const rows = [
    ...live.paths.map((path) => ({ ...path, label: `Path ${path.index}` })),
    ...live.planned_paths.map((path) => ({ ...path, label: `${path.type}: path ${path.path} of cell ${path.cell}` })),
  ];
  return (
    <section aria-labelledby="paths">
      <h2 id="paths">Paths</h2>
      <Table label="Shares of the paths" columns={["Path", "Planned share", "Actual share", "Requests"]}>
        {rows.map((path) => (
          <tr key={path.label}>
            <th scope="row">{path.label}</th>
            <td>
              <Bar value={path.planned} kind="planned" />
            </td>
            <td>
              <Bar value={path.actual} kind="actual" />
            </td>
            <td>{number(path.requests_total)}</td>
          </tr>
        ))}
      </Table>
    </section>
  );
}

function Bar({ value, kind }: { value: number | null; kind: string }) {
  return (
    <span class={`share ${kind}`}>
      <span class="track">
        <span class="part" style={{ width: `${(value ?? 0) * 100}%` }} />
      </span>
      {share(value)}
    </span>
  );
}

/** The ranges of the charts in minutes, with their names. */
const RANGES: [number, string][] = [
  [5, "5 minutes"],
  [15, "15 minutes"],
  [60, "hour"],
  [6 * 60, "6 hours"],
  [24 * 60, "day"],
  [7 * 24 * 60, "week"],
];

function Charts({ name }: { name: string }) {
  const [minutes, setMinutes] = useState(15);
  const hours = Math.max(minutes / 60, 1);
  const refresh = hours > 1 ? LONG_SERIES_SECONDS : SERIES_SECONDS;
  const { value: series, error } = usePolled<Series>(`${appPath(name)}/series?hours=${hours}`, refresh);
  if (series === null) return <Problem error={error} />;
  const steps = Math.ceil((minutes * 60) / series.step_seconds);
  const shown = RANGES.filter(([range]) => range <= 60 * series.longest_hours);
  // Until the figures of another range have arrived, or if they do not, the known ones may be too short.
  const isCovered = series.step_seconds * SERIES_STEPS >= minutes * 60;
  return (
    <section aria-labelledby="charts">
      <div class="row">
        <h2 id="charts">Last {shown.find(([range]) => range === minutes)?.[1]}</h2>
        <fieldset class="ranges">
          <legend class="hidden">Time range</legend>
          {shown.map(([range, label]) => (
            <label key={range}>
              <input type="radio" name="range" checked={range === minutes} onChange={() => setMinutes(range)} /> {label}
            </label>
          ))}
        </fieldset>
      </div>
      <Problem error={error} />
      <MissingGateways gateways={series.gateways} />
      {isCovered ? <ChartGrid series={series} steps={steps} /> : !error && <p class="quiet">Reading…</p>}
    </section>
  );
}

function ChartGrid({ series, steps }: { series: Series; steps: number }) {
  const last = (values: (number | null)[]) => values.slice(-steps);
  const times = series.times.slice(-steps);
  const line = (label: string, values: (number | null)[], color: string) => ({ label, values: last(values), color });
  const latencies: [string, (number | null)[], (number | null)[]][] = [
    ["TTFT", series.ttft_p50, series.ttft_p90],
    ["TBT", series.tbt_p50, series.tbt_p90],
    ["End to end", series.e2e_p50, series.e2e_p90],
  ];
  return (
    <div class="charts">
      <Chart
        title="Requests per second"
        times={times}
        format={(value) => number(value, 2)}
        lines={[
          line("requests", series.requests_per_second, "--line-1"),
          line("errors", series.errors_per_second, "--line-2"),
        ]}
      />
      {latencies.map(([title, p50, p90]) => (
        <Chart
          key={title}
          title={title}
          times={times}
          format={seconds}
          lines={[line("p50", p50, "--line-1"), line("p90", p90, "--line-3")]}
        />
      ))}
      <Chart
        title="Generated tokens per second"
        times={times}
        format={(value) => number(value)}
        lines={[line("tokens", series.generation_tokens_per_second, "--line-1")]}
      />
      <Chart
        title="Running requests"
        times={times}
        format={(value) => number(value)}
        lines={[line("running", series.running, "--line-1")]}
      />
      <Chart
        title="Replicas"
        times={times}
        format={(value) => number(value)}
        lines={[
          line("ready", series.ready, "--line-1"),
          line("starting", series.starting, "--line-3"),
          line("draining", series.draining, "--line-4"),
          line("failed", series.failed, "--line-2"),
        ]}
      />
    </div>
  );
}
