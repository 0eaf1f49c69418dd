import { usePolled } from "../api/hooks";
import type { RequestTimeline, Span } from "../api/types";
import { Figure, Problem } from "../components/notices";
import { clock, number, seconds } from "../format";
import { href } from "../routes";

/** The timeline of a request: media, the app's code, and the invocations with their first output. */
export function TimelineView({ id }: { id: string }) {
  const { value: request, error } = usePolled<RequestTimeline>(`admin/v1/requests/${encodeURIComponent(id)}`, 0);
  return (
    <>
      <h1>Request {id}</h1>
      <Problem error={error} />
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

function SpanRow({ span, length }: { span: Span; length: number }) {
  const percent = (time: number) => `${(100 * Math.min(Math.max(time, 0), length)) / Math.max(length, 1e-9)}%`;
  const wait = span.first_output === null ? null : span.first_output - span.start;
  const notes = [
    seconds(span.end - span.start),
    wait === null ? "" : `first output after ${seconds(wait)}`,
    span.items > 0 ? `${number(span.items)} items` : "",
    span.after.length > 0 ? `reads ${span.after.join(", ")}` : "",
    span.attempt > 0 ? `attempt ${span.attempt + 1}` : "",
    span.code !== "OK" ? span.code : "",
    span.replica ?? "",
  ];
  return (
    <li class={span.code === "OK" ? "" : "failed"}>
      <div class="label">
        <b>
          {span.kind === "invocation" ? `${span.index} ` : ""}
          {span.name}
        </b>{" "}
        <span class="quiet">{notes.filter(Boolean).join(" · ")}</span>
      </div>
      <div class="track">
        <div class={`part ${span.kind}`} style={{ left: percent(span.start), width: percent(span.end - span.start) }} />
        {span.first_output !== null && (
          <div
            class="part stream"
            style={{ left: percent(span.first_output), width: percent(span.end - span.first_output) }}
          />
        )}
      </div>
    </li>
  );
}
