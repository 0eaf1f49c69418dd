import { Scroll } from "../components/scroll";
import { seconds } from "../format";
import { href } from "../routes";
import type { Answer } from "./answer";
import type { Json } from "./draft";

const PNG_START = "iVBORw0KGgo";

/** An answer as it arrives: text, images with their steps, and speech. */
export function AnswerView({ answer }: { answer: Answer }) {
  return (
    <div class="answer" aria-busy={answer.seconds === null}>
      {answer.reasoning && (
        <details>
          <summary>Reasoning</summary>
          <p class="text">{answer.reasoning}</p>
        </details>
      )}
      {answer.text && <p class="text">{answer.text}</p>}
      {answer.step && (
        <label class="quiet">
          Step {answer.step.step} of {answer.step.steps}
          <progress value={answer.step.step} max={answer.step.steps} />
        </label>
      )}
      {answer.images.map((image, index) => (
        // A preview becomes the image at the same position.
        <img key={index} src={image} alt={`Result ${index + 1}`} />
      ))}
      {answer.values.map((value, index) => (
        // Values are only appended.
        <Value key={index} value={value} />
      ))}
      {answer.speechSeconds > 0 && <p class="quiet">{seconds(answer.speechSeconds)} of speech</p>}
      {answer.speech && (
        // biome-ignore lint/a11y/useMediaCaption: the text of the speech is above.
        <audio controls src={answer.speech} />
      )}
      {answer.error && (
        <p role="alert" class="error">
          {answer.error}
        </p>
      )}
      <p class="quiet">
        {answer.seconds === null ? "running" : seconds(answer.seconds)}
        {answer.firstSeconds !== null && ` · first output after ${seconds(answer.firstSeconds)}`}
        {tokens(answer)}
        {answer.seconds !== null && answer.requestId && (
          <>
            {" · "}
            <a href={href({ view: "request", id: answer.requestId })}>timeline</a>
          </>
        )}
      </p>
    </div>
  );
}

function tokens(answer: Answer): string {
  const usage = answer.usage;
  const count = usage?.completion_tokens ?? usage?.output_tokens;
  return typeof count === "number" ? ` · ${count} tokens` : "";
}

/** A value of a native invocation. Texts that are PNG files in base64 are shown as images. */
function Value({ value }: { value: Json }) {
  const images = pngs(value);
  return (
    <>
      {images.map((image) => (
        <img key={image.slice(0, 200)} src={`data:image/png;base64,${image}`} alt="Result" />
      ))}
      <Scroll label="Response">
        <pre>{JSON.stringify(value, (_key, part) => (isPng(part) ? "(a PNG file)" : part), 2)}</pre>
      </Scroll>
    </>
  );
}

function isPng(value: unknown): value is string {
  return typeof value === "string" && value.startsWith(PNG_START);
}

function pngs(value: Json): string[] {
  if (isPng(value)) return [value];
  return typeof value === "object" && value !== null ? Object.values(value).flatMap(pngs) : [];
}
