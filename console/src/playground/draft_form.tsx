import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { messageOf } from "../api/client";
import { Problem } from "../components/notices";
import { DEFAULT_PREVIEWS, type Draft, FORM_FILES, type Mode, readFiles } from "./draft";

const TEXT_LABELS: Record<Mode, string> = {
  chat: "Message",
  image: "What to draw",
  edit: "What to change",
  speech: "Text to speak",
  transcription: "",
  invoke: "Request as JSON",
};

const ACCEPTED: Partial<Record<Mode, string>> = {
  chat: "image/*,audio/*,video/*",
  edit: "image/*",
  transcription: "audio/*",
};

interface DraftFormProps {
  mode: Mode;
  draft: Draft;
  onChange: (draft: Draft) => void;
  onSubmit: () => void;
  onStop: () => void;
  running: boolean;
  /** Whether an app can speak its response to a chat. */
  speaks: boolean;
  disabled: boolean;
}

/** The fields of a mode. Ctrl+Enter sends the request. */
export function DraftForm({ mode, draft, onChange, onSubmit, onStop, running, speaks, disabled }: DraftFormProps) {
  const set = (change: Partial<Draft>) => onChange({ ...draft, ...change });
  const field = (name: keyof Draft, label: string, attributes: object = { type: "number", step: "any" }) => (
    <label>
      {label}
      <input
        {...attributes}
        value={draft[name] as string}
        onInput={(event) => set({ [name]: event.currentTarget.value })}
      />
    </label>
  );
  function submit(event: Event) {
    event.preventDefault();
    if (!running && !disabled) onSubmit();
  }
  function onKeyDown(event: KeyboardEvent) {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    (event.currentTarget as HTMLTextAreaElement).form?.requestSubmit();
  }
  const accepted = ACCEPTED[mode];
  return (
    <form class="form draft" onSubmit={submit}>
      {mode !== "transcription" && (
        <label>
          {TEXT_LABELS[mode]}
          <textarea
            rows={mode === "invoke" ? 6 : 3}
            required={mode !== "chat" || draft.files.length === 0}
            value={draft.text}
            onKeyDown={onKeyDown}
            onInput={(event) => set({ text: event.currentTarget.value })}
          />
        </label>
      )}
      {accepted && <Files accepted={accepted} mode={mode} draft={draft} set={set} />}
      <Options>
        {mode === "chat" && (
          <>
            {field("system", "System message", { type: "text" })}
            {field("temperature", "Temperature", { type: "number", step: "any", min: 0, max: 2 })}
            {field("maxTokens", "Maximum tokens", { type: "number", min: 1 })}
            {field("seed", "Seed", { type: "number" })}
            {speaks && (
              <label>
                <input type="checkbox" checked={draft.spoken} onChange={() => set({ spoken: !draft.spoken })} /> Spoken
                response
              </label>
            )}
            {speaks && draft.spoken && field("voice", "Voice", { type: "text", required: true })}
          </>
        )}
        {(mode === "image" || mode === "edit") && (
          <>
            {field("size", "Size", { type: "text", placeholder: "256x256", pattern: "auto|\\d+x\\d+" })}
            {field("steps", "Steps", { type: "number", min: 1 })}
            {field("previews", "Previews", { type: "number", min: 0, max: 3, placeholder: DEFAULT_PREVIEWS })}
            {field("seed", "Seed", { type: "number" })}
          </>
        )}
        {mode === "speech" && (
          <>
            {field("voice", "Voice", { type: "text" })}
            {field("speed", "Speed", { type: "number", step: "any", min: 0.25, max: 4 })}
            {field("seed", "Seed", { type: "number" })}
          </>
        )}
      </Options>
      <div class="row">
        <button type="submit" class="primary" disabled={running || disabled}>
          Send
        </button>
        {running && (
          <button type="button" onClick={onStop}>
            Stop
          </button>
        )}
      </div>
    </form>
  );
}

function Options({ children }: { children: ComponentChildren }) {
  return <div class="options">{children}</div>;
}

interface FilesProps {
  accepted: string;
  mode: Mode;
  draft: Draft;
  set: (change: Partial<Draft>) => void;
}

/** The files of a chat's message, or the one file that a form sends: another one replaces it. */
function Files({ accepted, mode, draft, set }: FilesProps) {
  const [error, setError] = useState("");
  const isOne = mode in FORM_FILES;
  async function add(event: Event) {
    const input = event.currentTarget as HTMLInputElement;
    setError("");
    try {
      if (input.files?.length) {
        const added = await readFiles(input.files);
        set({ files: isOne ? added : [...draft.files, ...added] });
      }
    } catch (problem) {
      setError(messageOf(problem));
    }
    input.value = "";
  }
  return (
    <div class="row">
      <label>
        Files{" "}
        <input
          type="file"
          accept={accepted}
          multiple={!isOne}
          required={isOne && draft.files.length === 0}
          onChange={add}
        />
      </label>
      {draft.files.map((file) => (
        <button
          key={file.url.slice(-100) + file.name}
          type="button"
          aria-label={`Remove ${file.name}`}
          onClick={() => set({ files: draft.files.filter((each) => each !== file) })}
        >
          {file.name} ×
        </button>
      ))}
      <Problem error={error} />
    </div>
  );
}
