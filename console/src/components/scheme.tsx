import { useState } from "preact/hooks";

const SCHEMES = ["system", "light", "dark"] as const;
type Scheme = (typeof SCHEMES)[number];
const KEY = "cornserve-scheme";

/** The name of the event after a change of the color scheme. */
export const SCHEME_CHANGED = "cornserve-scheme-changed";

function chosen(): Scheme {
  const stored = localStorage.getItem(KEY);
  return SCHEMES.find((scheme) => scheme === stored) ?? "system";
}

/** Sets the color scheme that the user has chosen. */
export function applyScheme(): void {
  const scheme = chosen();
  document.documentElement.style.colorScheme = scheme === "system" ? "light dark" : scheme;
  window.dispatchEvent(new Event(SCHEME_CHANGED));
}

export function SchemeSelect() {
  const [scheme, setScheme] = useState(chosen);
  function onChange(event: Event) {
    const next = (event.currentTarget as HTMLSelectElement).value as Scheme;
    localStorage.setItem(KEY, next);
    setScheme(next);
    applyScheme();
  }
  return (
    <select aria-label="Color scheme" value={scheme} onChange={onChange}>
      {SCHEMES.map((name) => (
        <option key={name} value={name}>
          {name}
        </option>
      ))}
    </select>
  );
}
