import { memo } from "preact/compat";
import { useState } from "preact/hooks";
import { useEvents } from "../api/hooks";
import type { AppEvent, AppFigures, Attention, Overview } from "../api/types";
import { Figure, MissingGateways, Problem, State } from "../components/notices";
import { Table } from "../components/table";
import { clock, dollars, medianAndTail, number, plural, rate, seconds, share } from "../format";
import { href } from "../routes";
import { useIsAdmin } from "../session";

const SHOWN_EVENTS = 20;

/** The apps with their figures, what needs attention, and the last events. */
export function OverviewView() {
  const { value: overview, error } = useEvents<Overview>("admin/v1/overview/events", "overview");
  return (
    <>
      <h1>Overview</h1>
      <Problem error={error} />
      {overview ? <Content overview={overview} /> : <p class="quiet">Reading…</p>}
    </>
  );
}

function Content({ overview }: { overview: Overview }) {
  return (
    <>
      <MissingGateways gateways={overview.gateways} />
      <dl class="figures">
        <Figure label="Apps" value={number(overview.apps.length)} />
        <Figure label="Requests" value={rate(sum(overview.apps, (app) => app.requests_per_second ?? 0))} />
        <Figure label="Running" value={number(sum(overview.apps, (app) => app.running))} />
        <Figure label="GPUs" value={number(overview.gpus)} />
        {overview.dollars_per_hour !== null && <Figure label="Cost" value={dollars(overview.dollars_per_hour)} />}
      </dl>
      {overview.apps.some((app) => app.name === "demo") && (
        <p>
          <a href={href({ view: "demo" })}>Demo: draw, name and spell</a>
        </p>
      )}
      <AttentionList attention={overview.attention} />
      <Apps apps={overview.apps} window={overview.window_seconds} />
      {overview.unreadable.map((app) => (
        <p key={app.name} class="error">
          {app.name}: {app.message}
        </p>
      ))}
      <section aria-labelledby="events">
        <h2 id="events">Events</h2>
        <EventList events={overview.events.slice(0, SHOWN_EVENTS)} />
      </section>
    </>
  );
}

function sum(apps: AppFigures[], value: (app: AppFigures) => number): number {
  return apps.reduce((total, app) => total + value(app), 0);
}

function AttentionList({ attention }: { attention: Attention[] }) {
  if (attention.length === 0) return null;
  return (
    <section aria-labelledby="attention">
      <h2 id="attention">Needs attention</h2>
      <ul class="attention">
        {attention.map((item) => (
          <li key={`${item.app} ${item.reason} ${item.message}`} class={item.severity}>
            <b>{item.severity}</b> {item.app !== null && <a href={href({ view: "app", name: item.app })}>{item.app}</a>}{" "}
            {item.message} {item.action && <code>{item.action}</code>}
          </li>
        ))}
      </ul>
    </section>
  );
}

function Apps({ apps, window }: { apps: AppFigures[]; window: number }) {
  const [filter, setFilter] = useState("");
  const isAdmin = useIsAdmin();
  if (apps.length === 0) {
    return (
      <p>
        No app is deployed. {isAdmin ? <a href={href({ view: "deploy" })}>Deploy one</a> : null} or run{" "}
        <code>cornserve demo</code>.
      </p>
    );
  }
  const shown = apps.filter((app) => app.name.includes(filter) || app.phase.includes(filter));
  return (
    <section aria-labelledby="apps">
      <div class="row">
        <h2 id="apps">Apps</h2>
        <input
          type="search"
          aria-label="Filter apps by name or phase"
          placeholder="Filter"
          value={filter}
          onInput={(event) => setFilter(event.currentTarget.value)}
        />
        <span class="quiet">rates and percentiles of the last {plural(window, "second")}</span>
      </div>
      <Table
        label="Figures of the apps"
        columns={[
          "App",
          "Phase",
          "Replicas",
          "GPUs",
          "Requests",
          "Running",
          "TTFT p50 / p99",
          "TBT p50 / p99",
          "Tokens",
          "Attainment",
          "Errors",
        ]}
      >
        {shown.map((app) => (
          <AppRow key={app.name} app={app} />
        ))}
      </Table>
    </section>
  );
}

/** A row of the table. It renders only if a figure has changed. */
const AppRow = memo(
  ({ app }: { app: AppFigures }) => (
    <tr>
      <th scope="row">
        <a href={href({ view: "app", name: app.name })}>{app.name}</a>
        {app.message && <div class="message">{app.message}</div>}
        {app.suspended && <div class="message">{app.suspended}</div>}
      </th>
      <td>
        <State name={app.phase} />
        {app.has_proposal && <span class="tag">proposal</span>}
      </td>
      <td data-figure="ready">
        {app.ready}/{app.wanted}
      </td>
      <td>{app.gpus}</td>
      <td>{rate(app.requests_per_second)}</td>
      <td>{app.running}</td>
      <td>{medianAndTail(app.ttft_seconds)}</td>
      <td>{medianAndTail(app.tbt_seconds)}</td>
      <td>{rate(app.generation_tokens_per_second)}</td>
      <td>
        {app.targets.map((target) => (
          <div key={target.target}>
            {target.target} ≤ {seconds(target.seconds)}: {share(target.attainment)}
          </div>
        ))}
      </td>
      <td data-figure="errors" class={app.errors_per_second ? "bad" : ""}>
        {number(app.errors_total)} of {number(app.requests_total)}
      </td>
    </tr>
  ),
  (last, next) => JSON.stringify(last.app) === JSON.stringify(next.app),
);

export function EventList({ events }: { events: (AppEvent & { app?: string })[] }) {
  if (events.length === 0) return <p class="quiet">No events.</p>;
  return (
    <ol class="events">
      {events.map((event) => (
        <li key={`${event.time} ${event.object} ${event.reason} ${event.message}`} class={event.type.toLowerCase()}>
          <time>{clock(event.time)}</time>
          {event.app && <a href={href({ view: "app", name: event.app })}>{event.app}</a>}
          <b>{event.reason}</b>
          <span>
            {event.object}: {event.message}
            {event.count > 1 && ` (${event.count} times)`}
          </span>
        </li>
      ))}
    </ol>
  );
}
