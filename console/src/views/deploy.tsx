import { useState } from "preact/hooks";
import { ApiError, appPath, get, messageOf, sendJson } from "../api/client";
import { Confirmation } from "../components/dialog";
import { Problem } from "../components/notices";
import { href } from "../routes";

const KINDS = ["model", "source"] as const;

/** Parts of a deployed app that the form does not have, and that are null or missing if the app does not have them. */
interface DeployedSpec {
  plan?: object | null;
  planning?: object | null;
  executors?: object[];
  policies?: { targets?: object | null; adaptation?: object | null; autoscaling?: object | null };
}

/** Returns the names of what a deployment by the form removes. */
function lostParts({ plan, planning, policies, executors }: DeployedSpec): string[] {
  const parts: [string, unknown][] = [
    ["the plan", plan ?? planning],
    ["the latency targets", policies?.targets],
    ["the adaptation to the load", policies?.adaptation],
    ["the autoscaling", policies?.autoscaling],
    ["the settings of executors", executors?.length],
  ];
  return parts.filter(([, value]) => value).map(([name]) => name);
}

/** Deploys a model, or the Python source of an app, after a confirmation. */
export function Deploy() {
  const [kind, setKind] = useState<(typeof KINDS)[number]>("model");
  const [name, setName] = useState("");
  const [model, setModel] = useState("");
  const [source, setSource] = useState("");
  const [replicas, setReplicas] = useState("1");
  const [error, setError] = useState("");
  const [asked, setAsked] = useState<"create" | "replace" | null>(null);
  const [lost, setLost] = useState<string[]>([]);

  async function ask(event: Event) {
    event.preventDefault();
    setError("");
    try {
      const { spec } = await get<{ spec: DeployedSpec }>(appPath(name));
      setLost(lostParts(spec));
      setAsked("replace");
    } catch (problem) {
      if (problem instanceof ApiError && problem.status === 404) setAsked("create");
      else setError(messageOf(problem));
    }
  }

  async function deploy() {
    const content = kind === "model" ? { model: { id: model } } : { source: { inline: source } };
    await sendJson("PUT", appPath(name), { ...content, replicas: Number(replicas) });
    location.hash = href({ view: "app", name });
  }

  return (
    <>
      <h1>Deploy</h1>
      <form onSubmit={ask} class="form">
        <fieldset class="ranges">
          <legend>Deploy</legend>
          {KINDS.map((each) => (
            <label key={each}>
              <input type="radio" name="kind" checked={each === kind} onChange={() => setKind(each)} />{" "}
              {each === "model" ? "a model" : "the source of an app"}
            </label>
          ))}
        </fieldset>
        <label>
          Name of the app
          <input required value={name} autoComplete="off" onInput={(event) => setName(event.currentTarget.value)} />
        </label>
        {kind === "model" ? (
          <label>
            Model: a Hugging Face id, or the path of a directory on the machine of the gateway
            <input required value={model} autoComplete="off" onInput={(event) => setModel(event.currentTarget.value)} />
          </label>
        ) : (
          <label>
            Source: Python code that defines one App with this name
            <textarea
              required
              rows={16}
              spellcheck={false}
              value={source}
              onInput={(event) => setSource(event.currentTarget.value)}
            />
          </label>
        )}
        <label>
          Replicas of each executor
          <input
            type="number"
            min="0"
            max="64"
            required
            value={replicas}
            onInput={(event) => setReplicas(event.currentTarget.value)}
          />
        </label>
        <Problem error={error} />
        <button type="submit" class="primary">
          Deploy…
        </button>
      </form>
      {asked && (
        <Confirmation
          title={asked === "create" ? `Deploy ${name}?` : `Replace ${name}?`}
          action={asked === "create" ? "Deploy" : "Replace"}
          run={deploy}
          onClose={() => setAsked(null)}
        >
          <p>
            {asked === "create"
              ? "The controller starts its executors."
              : "An app with this name exists. It serves until the executors of the new generation are ready."}
            {kind === "source" && " The code runs on the machine of the gateway."}
          </p>
          {asked === "replace" && lost.length > 0 && (
            <p class="warning">The app loses what this form does not set: {lost.join(", ")}.</p>
          )}
        </Confirmation>
      )}
    </>
  );
}
