import { usePolled } from "../api/hooks";
import type { RequestTimeline, Span } from "../api/types";
import { Figure, MissingGateways, Problem } from "../components/notices";
import { clock, number, seconds } from "../format";
import { href } from "../routes";

/** The timeline of a request: media, the app's code, and the phases of the invocations. */
export function TimelineView({ id }: { id: string }) {
  const { value: request, error } = usePolled<RequestTimeline>(
    `admin/v1/requests/timeline?id=${encodeURIComponent(id)}`,
    0,
  );
  return (
    <>
      <h1>Request {id}</h1>
      <Problem error={error} />
      {request && <MissingGateways gateways={request.gateways} />}
      {request && <Content request={request} />}
    </>
  );
}

function Content({ request }: { request: RequestTimeline }) {
  return (
    <>
      <p>
        <a href={href({ view: "app", name: request.app })}>{request.app}</a> {request.operation} at{" "}
        {clock(request.time)}
      </p>
      {request.error && <p class="error">{request.error}</p>}
      <dl class="figures">
        <Figure label="Status" value={String(request.status)} />
        <Figure label="Duration" value={seconds(request.seconds)} />
        <Figure label="First output" value={seconds(request.first_chunk_seconds)} />
        <Figure label="Prompt tokens" value={number(request.prompt_tokens)} />
        <Figure label="Generated tokens" value={number(request.generation_tokens)} />
        <Figure label="Path" value={request.path === null ? "–" : String(request.path)} />
        <Figure label="Retries" value={number(request.retries)} />
      </dl>
      {request.spans.length > 0 && <Legend />}
      <ol class="timeline" aria-label="Stages">
        {request.spans.map((span) => (
          <SpanRow
            key={`${span.kind} ${span.index} ${span.attempt} ${span.start}`}
            span={span}
            length={request.seconds}
          />
        ))}
      </ol>
      {request.spans.length === 0 && <p class="quiet">The request reached no stage.</p>}
    </>
  );
}

const PHASE_LABELS = {
  media: "media",
  run: "code of the app",
  queue: "queue",
  transfer: "transfer of inputs",
  compute: "compute",
  stream: "streamed output",
};

interface Phase {
  name: keyof typeof PHASE_LABELS;
  start: number;
  end: number;
}

/** Returns the phases of a span. An executor that reports no end of the transfer has it in `compute`. */
function phasesOf(span: Span, length: number): Phase[] {
  const end = span.end ?? length;
  if (span.kind !== "invocation") return [{ name: span.kind, start: span.start, end }];
  const computing = span.inputs_read ?? span.start;
  const phases: Phase[] = [
    { name: "queue", start: span.queued ?? span.start, end: span.start },
    { name: "transfer", start: span.start, end: computing },
    { name: "compute", start: computing, end: Math.max(computing, span.first_output ?? end) },
    { name: "stream", start: Math.max(computing, span.first_output ?? end), end },
  ];
  return phases.filter((phase) => phase.end > phase.start || phase.name === "compute");
}

function SpanRow({ span, length }: { span: Span; length: number }) {
  const phases = phasesOf(span, length);
  const percent = (time: number) => `${(100 * Math.min(Math.max(time, 0), length)) / Math.max(length, 1e-9)}%`;
  const notes = [
    ...phases.map((phase) => `${PHASE_LABELS[phase.name]} ${seconds(phase.end - phase.start)}`),
    span.end === null ? "did not end" : "",
    span.items > 0 ? `${number(span.items)} items` : "",
    span.after.length > 0 ? `reads ${span.after.join(", ")}` : "",
    span.attempt > 0 ? `attempt ${span.attempt + 1}` : "",
    ["OK", ""].includes(span.code) ? "" : span.code,
    span.replica,
  ];
  return (
    <li class={["OK", ""].includes(span.code) ? "" : "failed"}>
      <div class="label">
        <b>
          {span.kind === "invocation" ? `${span.index} ` : ""}
          {span.name}
        </b>{" "}
        <span class="quiet">{notes.filter(Boolean).join(" · ")}</span>
      </div>
      <div class="track">
        {phases.map(({ name, start, end }) => (
          <div key={name} class={`part ${name}`} style={{ left: percent(start), width: percent(end - start) }} />
        ))}
      </div>
    </li>
  );
}

/** The colors of the phases. */
function Legend() {
  return (
    <p class="legend" aria-hidden="true">
      {Object.entries(PHASE_LABELS).map(([name, label]) => (
        <span key={name}>
          <span class={`part ${name}`} /> {label}
        </span>
      ))}
    </p>
  );
}
