import { useState } from "preact/hooks";
import { messageOf, send } from "../api/client";

/** Asks for the admin token or the read-only token. */
export function SignIn({ onSignedIn }: { onSignedIn: () => void }) {
  const [token, setToken] = useState("");
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);

  async function submit(event: Event) {
    event.preventDefault();
    setBusy(true);
    try {
      await send("POST", "session", { token });
      onSignedIn();
    } catch (problem) {
      setError(messageOf(problem));
      setToken("");
    } finally {
      setBusy(false);
    }
  }

  return (
    <main class="sign-in">
      <form onSubmit={submit}>
        <h1>Cornserve</h1>
        <label>
          Admin token, or read-only token
          <input
            type="password"
            name="token"
            autoComplete="current-password"
            required
            value={token}
            onInput={(event) => setToken(event.currentTarget.value)}
          />
        </label>
        {error && (
          <p role="alert" class="error">
            {error}
          </p>
        )}
        <button type="submit" class="primary" disabled={busy}>
          Sign in
        </button>
      </form>
    </main>
  );
}
