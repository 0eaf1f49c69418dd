import type { Gateways } from "../api/types";

/** Why figures are missing or old. */
export function Problem({ error }: { error: string }) {
  return error ? (
    <p role="alert" class="error">
      {error}
    </p>
  ) : null;
}

/** The gateways whose figures are missing. */
export function MissingGateways({ gateways }: { gateways: Gateways }) {
  if (gateways.missing.length === 0) return null;
  return (
    <p role="status" class="warning">
      The figures lack those of {gateways.missing.map(({ gateway, error }) => `${gateway} (${error})`).join(", ")}.
    </p>
  );
}

/** A phase or a state, by name and by color. */
export function State({ name }: { name: string }) {
  return <span class={`state state-${name}`}>{name}</span>;
}

export function Figure({ label, value }: { label: string; value: string }) {
  return (
    <div class="figure">
      <dt>{label}</dt>
      <dd>{value}</dd>
    </div>
  );
}
