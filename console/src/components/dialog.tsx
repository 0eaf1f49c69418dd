import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { messageOf } from "../api/client";

interface ConfirmationProps {
  title: string;
  /** The label of the button that confirms. */
  action: string;
  dangerous?: boolean;
  /** A text that the user must type to confirm. */
  typed?: string;
  run: () => Promise<unknown>;
  onClose: () => void;
  children?: ComponentChildren;
}

/** Asks before an operation runs, and shows its error. */
export function Confirmation({ title, action, dangerous, typed, run, onClose, children }: ConfirmationProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  const [text, setText] = useState("");
  useEffect(() => dialog.current?.showModal(), []);

  /** Removes the dialog by its state: it would otherwise be closed before its state is, and could not be opened again. */
  function cancel(event: Event) {
    event.preventDefault();
    onClose();
  }

  async function submit(event: Event) {
    event.preventDefault();
    setBusy(true);
    try {
      await run();
      onClose();
    } catch (problem) {
      setError(messageOf(problem));
      setBusy(false);
    }
  }

  return (
    <dialog ref={dialog} onCancel={cancel} onClose={onClose} aria-labelledby="confirmation">
      <form onSubmit={submit}>
        <h2 id="confirmation">{title}</h2>
        {children}
        {typed !== undefined && (
          <label>
            Type <b>{typed}</b> to confirm
            <input value={text} autoComplete="off" onInput={(event) => setText(event.currentTarget.value)} />
          </label>
        )}
        {error && (
          <p role="alert" class="error">
            {error}
          </p>
        )}
        <div class="row end">
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button
            type="submit"
            class={dangerous ? "danger" : "primary"}
            disabled={busy || (typed !== undefined && text !== typed)}
          >
            {action}
          </button>
        </div>
      </form>
    </dialog>
  );
}
