import { useEffect, useRef, useState } from "preact/hooks";
import { appPath } from "../api/client";
import { usePolled } from "../api/hooks";
import type { AppEvent, ReplicaLog } from "../api/types";
import { Problem } from "../components/notices";
import { Scroll } from "../components/scroll";
import { clock } from "../format";
import { AppHeading } from "./app";
import { EventList } from "./overview";

const LINES = 500;
const REFRESH_SECONDS = 2;

/** The logs of an app's replicas and of its code, and its events. Both are read again every two seconds. */
export function LogsView({ name }: { name: string }) {
  const [follow, setFollow] = useState(true);
  const seconds = follow ? REFRESH_SECONDS : 0;
  const logs = usePolled<{ replicas: ReplicaLog[] }>(`${appPath(name)}/logs?lines=${LINES}`, seconds);
  const history = usePolled<{ events: AppEvent[] }>(`${appPath(name)}/history`, seconds);
  return (
    <>
      <AppHeading name={name} current="logs" />
      <Problem error={logs.error || history.error} />
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
        </div>
        {logs.value && <Logs replicas={logs.value.replicas} follow={follow} />}
      </section>
    </>
  );
}

function Logs({ replicas, follow }: { replicas: ReplicaLog[]; follow: boolean }) {
  const [chosen, setChosen] = useState("");
  const [filter, setFilter] = useState("");
  const output = useRef<HTMLElement>(null);
  const replica = replicas.find((each) => each.id === chosen) ?? replicas.at(-1);
  const lines = (replica?.lines ?? []).filter((line) => line.includes(filter));
  // New lines scroll to the end.
  useEffect(() => {
    if (follow) output.current?.scrollTo(0, output.current.scrollHeight);
  }, [lines.length, lines.at(-1), follow]);
  if (replica === undefined) return <p class="quiet">No replica has written a log.</p>;
  return (
    <>
      <div class="row">
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
        <input
          type="search"
          aria-label="Show only lines with this text"
          placeholder="Filter"
          value={filter}
          onInput={(event) => setFilter(event.currentTarget.value)}
        />
      </div>
      {replica.exit && (
        <p class="warning">
          {clock(replica.exit.time)}: {replica.exit.message}
        </p>
      )}
      {replica.error && <p class="warning">{replica.error}</p>}
      <Scroll label={`Log of ${replica.id}`} class="log" frame={output}>
        <pre role="log">{lines.join("\n")}</pre>
      </Scroll>
    </>
  );
}
