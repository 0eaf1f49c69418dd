import { useState } from "preact/hooks";
import { appPath, sendJson } from "../api/client";
import type { LiveApp } from "../api/types";
import { Confirmation } from "../components/dialog";
import { href } from "../routes";

const MAX_REPLICAS = 64;

/** Requests per second. The API refuses 0. */
const LEAST_RATE = 0.001;

type Action = "scale" | "restart" | "kill" | "delete";

/** Buttons that scale, restart and delete an app, and kill a replica, after a confirmation. */
export function AppActions({ live }: { live: LiveApp }) {
  const [action, setAction] = useState<Action | null>(null);
  const { name } = live.app;
  const close = () => setAction(null);
  return (
    <div class="row actions">
      <button type="button" onClick={() => setAction("scale")}>
        Scale…
      </button>
      <button type="button" onClick={() => setAction("restart")}>
        Restart…
      </button>
      <button type="button" class="danger" onClick={() => setAction("kill")}>
        Kill a replica…
      </button>
      <button type="button" class="danger" onClick={() => setAction("delete")}>
        Delete…
      </button>
      {action === "scale" && <Scale live={live} onClose={close} />}
      {action === "kill" && <Kill live={live} onClose={close} />}
      {action === "restart" && (
        <Confirmation
          title={`Restart ${name}?`}
          action="Restart"
          run={() => sendJson("POST", `${appPath(name)}/restart`)}
          onClose={close}
        >
          <p>The running executors serve until the new ones are ready.</p>
        </Confirmation>
      )}
      {action === "delete" && (
        <Confirmation
          title={`Delete ${name}?`}
          action="Delete"
          dangerous
          typed={name}
          run={async () => {
            await sendJson("DELETE", appPath(name));
            location.hash = href({ view: "overview" });
          }}
          onClose={close}
        >
          <p>Its executors finish their requests and exit.</p>
        </Confirmation>
      )}
    </div>
  );
}

/** Asks for the replica to kill, to try the recovery. */
function Kill({ live, onClose }: { live: LiveApp; onClose: () => void }) {
  const replicas = live.nodes.flatMap((node) => node.replicas.map((replica) => replica.id));
  const [chosen, setChosen] = useState(replicas[0] ?? "");
  const { name } = live.app;
  return (
    <Confirmation
      title="Kill a replica?"
      action="Kill"
      dangerous
      run={() => sendJson("POST", `${appPath(name)}/replicas/${encodeURIComponent(chosen)}/kill`)}
      onClose={onClose}
    >
      <label>
        Replica
        <select value={chosen} onChange={(event) => setChosen(event.currentTarget.value)}>
          {replicas.map((id) => (
            <option key={id} value={id}>
              {id}
            </option>
          ))}
        </select>
      </label>
      <p>Its process ends at once, and the controller starts another one.</p>
    </Confirmation>
  );
}

/** Asks for the number of replicas, of each executor or of one. An app with a plan has a rate instead. */
function Scale({ live, onClose }: { live: LiveApp; onClose: () => void }) {
  const executors = [...new Set(live.nodes.map((node) => node.executor))];
  const [executor, setExecutor] = useState("");
  const [amount, setAmount] = useState(() => String(live.plan ? live.plan.target || "" : (live.nodes[0]?.wanted ?? 1)));
  const { name } = live.app;

  function run() {
    const value = Number(amount);
    if (live.plan) return sendJson("PUT", `${appPath(name)}/scale`, { rate: value });
    const body = executor === "" ? { replicas: value } : { executors: { [executor]: value } };
    return sendJson("PUT", `${appPath(name)}/scale`, body);
  }

  return (
    <Confirmation title={`Scale ${name}`} action="Scale" run={run} onClose={onClose}>
      {live.plan ? (
        <label>
          Requests per second that the cells serve
          <input
            type="number"
            min={LEAST_RATE}
            step="any"
            required
            value={amount}
            onInput={(event) => setAmount(event.currentTarget.value)}
          />
        </label>
      ) : (
        <>
          <label>
            Executor
            <select value={executor} onChange={(event) => setExecutor(event.currentTarget.value)}>
              <option value="">all</option>
              {executors.map((each) => (
                <option key={each} value={each}>
                  {each}
                </option>
              ))}
            </select>
          </label>
          <label>
            Replicas
            <input
              type="number"
              min="0"
              max={MAX_REPLICAS}
              required
              value={amount}
              onInput={(event) => setAmount(event.currentTarget.value)}
            />
          </label>
          <p class="quiet">With 0, the app is parked: nothing runs, and requests get a 503.</p>
        </>
      )}
    </Confirmation>
  );
}
