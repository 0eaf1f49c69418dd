import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { messageOf } from "../api/client";
import { usePolled } from "../api/hooks";
import type { AppFigures, Overview } from "../api/types";
import { Problem } from "../components/notices";
import { Scroll } from "../components/scroll";
import { useIsAdmin } from "../session";
import { type Answer, ask } from "./answer";
import { AnswerView } from "./answer_view";
import {
  type Draft,
  EMPTY_DRAFT,
  type History,
  type JsonObject,
  MODE_LABELS,
  MODES,
  type Mode,
  type ModelRequest,
  modelRequest,
  modeOf,
  speaks,
  supports,
} from "./draft";
import { DraftForm } from "./draft_form";
import { curlCommand, gatewayAddress, pythonProgram } from "./snippets";

const REFRESH_SECONDS = 10;

/** Browsers open six connections to a server: a further request would wait in the browser, and look slow. */
const MAX_APPS = 5;

/** A request and the answer to it. */
interface Exchange {
  id: number;
  prompt: string;
  request: ModelRequest;
  answer: Answer | null;
}

/** Calls apps, several next to each other, and shows their answers as they arrive. */
export function Playground({ app }: { app: string | null }) {
  const { value, error } = usePolled<Overview>("admin/v1/overview", REFRESH_SECONDS);
  const apps = (value?.apps ?? []).filter((each) => each.serving_generation !== null);
  return (
    <>
      <h1>Playground</h1>
      <Problem error={error} />
      {!useIsAdmin() && <p class="warning">A read-only session cannot call models.</p>}
      {value && apps.length === 0 && <p>No app is served.</p>}
      {apps.length > 0 && <Conversations apps={apps} first={app} />}
    </>
  );
}

function Conversations({ apps, first }: { apps: AppFigures[]; first: string | null }) {
  const initial = first === null ? apps[0] : apps.find((app) => app.name === first);
  const [mode, setMode] = useState<Mode>(() => modeOf(initial ?? (apps[0] as AppFigures)));
  const [chosen, setChosen] = useState<string[]>(() => (initial ? [initial.name] : []));
  const [draft, setDraft] = useState<Draft>(EMPTY_DRAFT);
  const [error, setError] = useState("");
  const [conversations, setConversations] = useState<Record<string, Exchange[]>>({});
  const stop = useRef<AbortController | null>(null);
  const counter = useRef(0);
  const [running, setRunning] = useState(0);
  useEffect(() => () => stop.current?.abort(), []);

  const possible = apps.filter((app) => supports(app, mode));
  const selected = possible.filter((app) => chosen.includes(app.name)).slice(0, MAX_APPS);

  function change(name: string, update: (exchanges: Exchange[]) => Exchange[]) {
    setConversations((all) => ({ ...all, [name]: update(all[name] ?? []) }));
  }

  async function run(name: string, exchange: Exchange, signal: AbortSignal) {
    change(name, (exchanges) => [...exchanges, exchange]);
    await ask(exchange.request, signal, (answer, request) =>
      change(name, (exchanges) =>
        exchanges.map((each) => (each.id === exchange.id ? { ...each, answer, request } : each)),
      ),
    );
  }

  async function submit() {
    setError("");
    let requests: [string, ModelRequest][];
    try {
      requests = selected.map((app) => [
        app.name,
        modelRequest(mode, app, draft, history(conversations[app.name] ?? [])),
      ]);
    } catch (problem) {
      setError(messageOf(problem));
      return;
    }
    const controller = new AbortController();
    stop.current = controller;
    const prompt = [...draft.files.map((file) => file.name), draft.text].filter(Boolean).join(" · ");
    setDraft({ ...draft, ...(mode === "chat" ? { text: "", files: [] } : {}) });
    setRunning(requests.length);
    await Promise.all(
      requests.map(([name, request]) => {
        counter.current += 1;
        return run(name, { id: counter.current, prompt, request, answer: null }, controller.signal);
      }),
    );
    setRunning(0);
  }

  function selectMode(next: Mode) {
    setMode(next);
    setDraft({ ...draft, files: [] });
  }

  return (
    <>
      {first !== null && !apps.some((app) => app.name === first) && (
        <Problem error={`The app ${first} is not served.`} />
      )}
      <fieldset class="ranges">
        <legend>Operation</legend>
        {MODES.filter((each) => apps.some((app) => supports(app, each))).map((each) => (
          <label key={each}>
            <input type="radio" name="mode" checked={each === mode} onChange={() => selectMode(each)} />{" "}
            {MODE_LABELS[each]}
          </label>
        ))}
      </fieldset>
      <fieldset class="ranges">
        <legend>Apps</legend>
        {possible.map((app) => {
          const { name } = app;
          const isSelected = selected.includes(app);
          return (
            <label key={name}>
              <input
                type="checkbox"
                checked={isSelected}
                disabled={!isSelected && selected.length === MAX_APPS}
                onChange={() => setChosen(isSelected ? chosen.filter((each) => each !== name) : [...chosen, name])}
              />{" "}
              {name}
            </label>
          );
        })}
        {possible.length > MAX_APPS && <span class="quiet">at most {MAX_APPS}</span>}
      </fieldset>
      <div class="conversations">
        {selected.map(({ name }) => (
          <Conversation
            key={name}
            name={name}
            exchanges={(conversations[name] ?? []).filter((exchange) => exchange.request.mode === mode)}
            onClear={() => change(name, () => [])}
          />
        ))}
      </div>
      <Problem error={error} />
      <DraftForm
        mode={mode}
        draft={draft}
        onChange={setDraft}
        onSubmit={submit}
        onStop={() => stop.current?.abort()}
        running={running > 0}
        speaks={selected.some(speaks)}
        disabled={selected.length === 0}
      />
    </>
  );
}

/** Returns a chat so far. Failed exchanges are left out. */
function history(exchanges: Exchange[]): History {
  const answered = exchanges.filter(
    (exchange) => exchange.request.mode === "chat" && exchange.answer?.text && !exchange.answer.error,
  );
  const messages = answered.flatMap((exchange) => {
    const sent = exchange.request.body.messages as JsonObject[];
    return [sent.at(-1) ?? null, { role: "assistant", content: exchange.answer?.text ?? "" }];
  });
  return { messages, files: answered.flatMap((exchange) => exchange.request.files) };
}

interface ConversationProps {
  name: string;
  exchanges: Exchange[];
  onClear: () => void;
}

function Conversation({ name, exchanges, onClear }: ConversationProps) {
  const last = exchanges.at(-1);
  return (
    <section class="conversation" aria-label={`Conversation with ${name}`}>
      <div class="row">
        <h2>{name}</h2>
        {last && (
          <button type="button" onClick={onClear}>
            Clear
          </button>
        )}
      </div>
      {exchanges.map((exchange) => (
        <div key={exchange.id}>
          <p class="prompt text">{exchange.prompt}</p>
          {exchange.answer && <AnswerView answer={exchange.answer} />}
        </div>
      ))}
      {last && <Snippets request={last.request} />}
    </section>
  );
}

function Snippets({ request }: { request: ModelRequest }) {
  const [isOpen, setIsOpen] = useState(false);
  return (
    <details class="snippets" onToggle={(event) => setIsOpen(event.currentTarget.open)}>
      <summary>The last request as code</summary>
      {isOpen && <Programs request={request} />}
    </details>
  );
}

function Programs({ request }: { request: ModelRequest }) {
  const base = gatewayAddress();
  const curl = useMemo(() => curlCommand(request, base), [request, base]);
  const python = useMemo(() => pythonProgram(request, base), [request, base]);
  return (
    <>
      <Snippet label="curl" code={curl} />
      <Snippet label="Python" code={python} />
    </>
  );
}

function Snippet({ label, code }: { label: string; code: string }) {
  return (
    <>
      <div class="row">
        <h3>{label}</h3>
        <button type="button" onClick={() => navigator.clipboard.writeText(code)}>
          Copy {label}
        </button>
      </div>
      <Scroll label={label}>
        <pre>{code}</pre>
      </Scroll>
    </>
  );
}
