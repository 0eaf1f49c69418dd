import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { appPath, get, messageOf, send, sendJson } from "../api/client";
import { useEvents, usePolled } from "../api/hooks";
import type { LiveApp, Node } from "../api/types";
import { ExecutorGraph } from "../components/executor_graph";
import { MissingGateways, Problem, State } from "../components/notices";
import { Table } from "../components/table";
import { number, seconds } from "../format";
import { type Answer, ask } from "../playground/answer";
import { AnswerView } from "../playground/answer_view";
import type { ModelRequest } from "../playground/draft";
import { href } from "../routes";
import { useIsAdmin } from "../session";

/** The apps of `cornserve demo`. */
const DRAWER = "demo-drawer";
const ROUND_TRIP = "demo";
const SPELLER = "demo-speller";

/** The executor that is killed, if the app has it. */
const VICTIM = "image_generator";

const COLORS = ["red", "green", "blue", "yellow", "purple", "black"];
const SHAPES = ["circle", "square", "triangle", "cross"];
const WORDS = ["corn", "kernel", "maize", "husk", "popcorn", "cob", "harvest", "field"];
const SHOWN_PIXELS = 256;

/** The images of a measurement, and those that are drawn at a time. */
const MEASURED_IMAGES = 16;
const CONCURRENCY = 4;

/** Only one app has a stream: the measurement needs four of the six connections that a browser opens to a server. */
const REFRESH_SECONDS = 1;

const PATHS = { image: "Whole model", split: "Split components" };
type Path = keyof typeof PATHS;

function pick<T>(values: readonly T[]): T {
  return values[Math.floor(Math.random() * values.length)] as T;
}

function randomShapes(): string {
  return `${pick(COLORS)} ${pick(SHAPES)} and ${pick(COLORS)} ${pick(SHAPES)}`;
}

/** The apps of `cornserve demo`: they draw, name and spell, an executor is killed, and the model is split. */
export function DemoView() {
  const drawing = useEvents<LiveApp>(`${appPath(ROUND_TRIP)}/live/events`, "live");
  const splitting = usePolled<LiveApp>(`${appPath(DRAWER)}/live`, REFRESH_SECONDS);
  const spelling = usePolled<LiveApp>(`${appPath(SPELLER)}/live`, REFRESH_SECONDS);
  const isAdmin = useIsAdmin();
  if (drawing.error && drawing.value === null) {
    return (
      <>
        <h1>Demo</h1>
        <Problem error={drawing.error} />
        <p>
          <code>cornserve demo</code> deploys the apps of this page.
        </p>
      </>
    );
  }
  return (
    <>
      <h1>Demo</h1>
      {!isAdmin && <p class="warning">A read-only session cannot call models.</p>}
      <Section app={ROUND_TRIP} title="Draw and name" live={drawing.value} error={drawing.error}>
        {isAdmin && <Drawing />}
        {isAdmin && drawing.value && <Recovery live={drawing.value} />}
      </Section>
      <Section app={SPELLER} title="Spell" live={spelling.value} error={spelling.error}>
        {isAdmin && <Spelling />}
      </Section>
      <Section app={DRAWER} title="Whole or split" live={splitting.value} error={splitting.error}>
        {isAdmin && splitting.value && <Throughputs live={splitting.value} />}
      </Section>
    </>
  );
}

interface SectionProps {
  app: string;
  title: string;
  live: LiveApp | null;
  error: string;
  children: ComponentChildren;
}

/** An app with its executor graph. */
function Section({ app, title, live, error, children }: SectionProps) {
  return (
    <section aria-labelledby={`section-${app}`}>
      <div class="row">
        <h2 id={`section-${app}`}>{title}</h2>
        <a href={href({ view: "app", name: app })}>{app}</a>
        {live && <State name={live.app.phase} />}
      </div>
      <Problem error={error} />
      {live && <MissingGateways gateways={live.gateways} />}
      {live?.app.message && <p class="warning">{live.app.message}</p>}
      {children}
      {live && <ExecutorGraph label={`Executors of ${app}`} nodes={live.nodes} edges={live.edges} />}
    </section>
  );
}

interface NamedDrawing {
  b64_json: string;
  answer: string;
}

/** Draws a text, and shows what the vision-language model sees in the image. */
function Drawing() {
  const [prompt, setPrompt] = useState(randomShapes);
  const [drawn, setDrawn] = useState<(NamedDrawing & { prompt: string }) | null>(null);
  const [repeated, setRepeated] = useState(false);
  const [running, setRunning] = useState(false);
  const [error, setError] = useState("");
  const repeat = useRef(false);
  repeat.current = repeated;
  useEffect(
    () => () => {
      repeat.current = false;
    },
    [],
  );

  async function draw(event: Event) {
    event.preventDefault();
    setRunning(true);
    setError("");
    let next = prompt;
    try {
      do {
        const body = { prompt: next, seed: Math.floor(Math.random() * 1e9) };
        const named = await sendJson<NamedDrawing>("POST", `v1/apps/${ROUND_TRIP}/invoke`, body);
        setDrawn({ ...named, prompt: next });
        next = randomShapes();
        if (repeat.current) setPrompt(next);
      } while (repeat.current);
    } catch (problem) {
      setError(messageOf(problem));
    }
    setRunning(false);
  }

  return (
    <form class="row" onSubmit={draw}>
      {drawn && (
        <figure class="drawing">
          <img
            src={`data:image/png;base64,${drawn.b64_json}`}
            alt={drawn.prompt}
            width={SHOWN_PIXELS}
            height={SHOWN_PIXELS}
          />
          <figcaption>
            drawn from "{drawn.prompt}", named "{drawn.answer}"
          </figcaption>
        </figure>
      )}
      <label>
        One or two shapes{" "}
        <input required size={36} value={prompt} onInput={(event) => setPrompt(event.currentTarget.value)} />
      </label>
      <button type="button" onClick={() => setPrompt(randomShapes())}>
        Other shapes
      </button>
      <label>
        <input type="checkbox" checked={repeated} onChange={() => setRepeated(!repeated)} /> Repeat
      </label>
      <button type="submit" class="primary" disabled={running}>
        Draw and name
      </button>
      <Problem error={error} />
    </form>
  );
}

/** Spells a word in beeps, which are played as they arrive. */
function Spelling() {
  const [word, setWord] = useState(() => pick(WORDS));
  const [answer, setAnswer] = useState<Answer | null>(null);
  const stop = useRef(new AbortController());
  useEffect(() => () => stop.current.abort(), []);

  function spell(event: Event) {
    event.preventDefault();
    const request: ModelRequest = {
      mode: "chat",
      path: "v1/chat/completions",
      text: null,
      body: {
        model: SPELLER,
        messages: [{ role: "user", content: `Spell ${word}` }],
        modalities: ["text", "audio"],
        audio: { voice: "beeps", format: "pcm16" },
        temperature: 0,
        max_tokens: 40,
        stream: true,
      },
      files: [],
      defaults: [],
    };
    ask(request, stop.current.signal, setAnswer);
  }

  return (
    <form class="row" onSubmit={spell}>
      <label>
        A word{" "}
        <input
          required
          pattern="[a-z]{1,10}"
          title="up to ten lowercase letters"
          value={word}
          onInput={(event) => setWord(event.currentTarget.value)}
        />
      </label>
      <button type="submit" class="primary" disabled={answer !== null && answer.seconds === null}>
        Spell
      </button>
      {answer && <AnswerView answer={answer} />}
    </form>
  );
}

interface Killed {
  replica: string;
  at: number;
  recovered: number | null;
}

/** Kills the executor that draws, and shows the time until another one is ready. */
function Recovery({ live }: { live: LiveApp }) {
  const [killed, setKilled] = useState<Killed | null>(null);
  const [error, setError] = useState("");
  const drawing = readyIds(live.nodes.filter((node) => node.executor === VICTIM));
  const victim = drawing[0] ?? readyIds(live.nodes)[0];
  const isWhole = live.nodes.every((node) => node.ready >= node.wanted);
  const isGone = killed !== null && !readyIds(live.nodes).includes(killed.replica);
  useEffect(() => {
    if (killed !== null && killed.recovered === null && isGone && isWhole) {
      setKilled({ ...killed, recovered: (performance.now() - killed.at) / 1000 });
    }
  }, [killed, isGone, isWhole]);

  async function kill() {
    if (victim === undefined) return;
    setError("");
    try {
      await send("POST", `${appPath(ROUND_TRIP)}/replicas/${encodeURIComponent(victim)}/kill`);
      setKilled({ replica: victim, at: performance.now(), recovered: null });
    } catch (problem) {
      setError(messageOf(problem));
    }
  }

  return (
    <div class="row">
      <button type="button" class="danger" onClick={kill} disabled={victim === undefined || !isWhole}>
        Kill an executor
      </button>
      <span role="status">
        {killed &&
          (killed.recovered === null
            ? `${killed.replica} was killed. Another one starts…`
            : `${killed.replica} was killed. Another one was ready after ${seconds(killed.recovered)}.`)}
      </span>
      <Problem error={error} />
    </div>
  );
}

function readyIds(nodes: Node[]): string[] {
  return nodes.flatMap((node) => node.replicas.filter((each) => each.state === "ready").map((each) => each.id));
}

/** Serves the image model whole or by its components, and measures both. */
function Throughputs({ live }: { live: LiveApp }) {
  const [measured, setMeasured] = useState<Partial<Record<Path, number>>>({});
  const [wanted, setWanted] = useState<Path | null>(null);
  const [running, setRunning] = useState(false);
  const [error, setError] = useState("");
  const { app } = live;
  // The generation of the wanted path, once it is stored.
  const [generation, setGeneration] = useState(0);
  const isServed = app.phase === "serving" && app.serving_generation === app.generation && app.ready >= app.wanted;
  const isFailed = app.phase === "failed" && app.generation >= generation;

  useEffect(() => {
    if (wanted === null || running || generation === 0 || app.generation < generation) return;
    if (isFailed) {
      setWanted(null);
    } else if (isServed) {
      setRunning(true);
      throughput()
        .then(
          (rate) => setMeasured((known) => ({ ...known, [wanted]: rate })),
          (problem) => setError(messageOf(problem)),
        )
        .finally(() => {
          setRunning(false);
          setWanted(null);
        });
    }
  }, [wanted, running, generation, app.generation, isServed, isFailed]);

  async function serve(path: Path) {
    setError("");
    setWanted(path);
    setGeneration(0);
    try {
      const { spec } = await get<{ spec: { model: { id: string } } }>(appPath(DRAWER));
      const body = { model: { id: spec.model.id, shares: { [path]: 1 } } };
      setGeneration((await sendJson<{ generation: number }>("PUT", appPath(DRAWER), body)).generation);
    } catch (problem) {
      setError(messageOf(problem));
      setWanted(null);
    }
  }

  return (
    <>
      <div class="row">
        {Object.entries(PATHS).map(([path, label]) => (
          <button key={path} type="button" disabled={wanted !== null} onClick={() => serve(path as Path)}>
            {label}
          </button>
        ))}
        <span role="status">
          {wanted !== null && (running ? `Drawing ${MEASURED_IMAGES} images…` : `${PATHS[wanted]}: executors start…`)}
        </span>
      </div>
      <Problem error={error} />
      {Object.keys(measured).length > 0 && (
        <Table label="Throughputs" columns={["Executors", "Images per second"]}>
          {Object.entries(PATHS).map(([path, label]) => (
            <tr key={path}>
              <th scope="row">{label}</th>
              <td>{number(measured[path as Path], 2)}</td>
            </tr>
          ))}
        </Table>
      )}
    </>
  );
}

/** Draws images, and returns how many the app draws per second. */
async function throughput(): Promise<number> {
  const start = performance.now();
  let next = 0;
  async function drawInTurn() {
    while (next < MEASURED_IMAGES) {
      const seed = next;
      next += 1;
      await sendJson("POST", "v1/images/generations", {
        model: DRAWER,
        prompt: randomShapes(),
        size: "64x64",
        num_inference_steps: 12,
        true_cfg_scale: 2,
        seed,
      });
    }
  }
  await Promise.all(Array.from({ length: CONCURRENCY }, drawInTurn));
  return (MEASURED_IMAGES * 1000) / (performance.now() - start);
}
