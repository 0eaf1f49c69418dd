import { useEffect, useRef, useState } from "preact/hooks";
import { appPath } from "../api/client";
import { usePolled } from "../api/hooks";
import type { AppEvent, ReplicaLogs } from "../api/types";
import { Problem } from "../components/notices";
import { Scroll } from "../components/scroll";
import { clock } from "../format";
import { AppHeading } from "./app";
import { EventList } from "./overview";

const LINES = 500;
const REFRESH_SECONDS = 2;

/** The list of the logs is also read after each event. */
const LIST_SECONDS = 10;

/** The log of one of an app's replicas or of its code, and its events. Both are read again every two seconds. */
export function LogsView({ name }: { name: string }) {
  const [follow, setFollow] = useState(true);
  const [chosen, setChosen] = useState("");
  const history = usePolled<{ events: AppEvent[] }>(`${appPath(name)}/history`, follow ? REFRESH_SECONDS : 0);
  const list = usePolled<ReplicaLogs>(`${appPath(name)}/logs?lines=1`, follow ? LIST_SECONDS : 0);
  const events = JSON.stringify(history.value?.events);
  useEffect(list.refresh, [events]);
  const replicas = list.value?.replicas ?? [];
  const replica = replicas.find((each) => each.id === chosen) ?? replicas.at(-1);
  return (
    <>
      <AppHeading name={name} current="logs" />
      <Problem error={list.error || history.error} />
      <section aria-labelledby="events">
        <h2 id="events">Events</h2>
        {history.value && <EventList events={history.value.events.toReversed()} />}
      </section>
      <section aria-labelledby="logs">
        <div class="row">
          <h2 id="logs">Logs</h2>
          <label>
            <input type="checkbox" checked={follow} onChange={() => setFollow(!follow)} /> Follow
          </label>
          {replica && (
            <label>
              Replica{" "}
              <select value={replica.id} onChange={(event) => setChosen(event.currentTarget.value)}>
                {replicas.map((each) => (
                  <option key={each.id} value={each.id}>
                    {each.id}
                    {each.exit ? " (ended)" : ""}
                  </option>
                ))}
              </select>
            </label>
          )}
        </div>
        {replicas
          .filter((each) => each.error && each.id !== replica?.id)
          .map((each) => (
            <p key={each.id} role="status" class="warning">
              {each.id}: {each.error}
            </p>
          ))}
        {replica && <Log key={replica.id} name={name} id={replica.id} follow={follow} />}
        {list.value && !replica && <p class="quiet">No replica has written a log.</p>}
      </section>
    </>
  );
}

/** The last lines of a log. Only this log is read. */
function Log({ name, id, follow }: { name: string; id: string; follow: boolean }) {
  const [filter, setFilter] = useState("");
  const output = useRef<HTMLElement>(null);
  const path = `${appPath(name)}/logs?lines=${LINES}&replica=${encodeURIComponent(id)}`;
  const { value, error } = usePolled<ReplicaLogs>(path, follow ? REFRESH_SECONDS : 0);
  const log = value?.replicas[0];
  const lines = (log?.lines ?? []).filter((line) => line.includes(filter));
  // New lines scroll to the end.
  useEffect(() => {
    if (follow) output.current?.scrollTo(0, output.current.scrollHeight);
  }, [lines.length, lines.at(-1), follow]);
  return (
    <>
      <input
        type="search"
        aria-label="Show only lines with this text"
        placeholder="Filter"
        value={filter}
        onInput={(event) => setFilter(event.currentTarget.value)}
      />
      <Problem error={error} />
      {log?.exit && (
        <p class="warning">
          {clock(log.exit.time)}: {log.exit.message}
        </p>
      )}
      {log?.error && <p class="warning">{log.error}</p>}
      <Scroll label={`Log of ${id}`} class="log" frame={output}>
        <pre role="log">{lines.join("\n")}</pre>
      </Scroll>
    </>
  );
}
