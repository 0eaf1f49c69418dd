/** The documents of the console's API, as docs/reference/http-api.md describes them. */

export type Role = "admin" | "viewer" | null;

export interface Session {
  role: Role;
  needs_token: boolean;
  expires: number | null;
  version: string | null;
}

export type ReplicaState = "starting" | "ready" | "draining" | "failed";

export interface Percentiles {
  p50: number;
  p90: number;
  p99: number;
}

/** The gateways whose figures are included, and those that did not answer. */
export interface Gateways {
  read: number;
  missing: { gateway: string; error: string }[];
}

export interface TargetFigures {
  target: "ttft" | "tbt" | "e2e";
  seconds: number;
  met_total: number;
  missed_total: number;
  attainment: number | null;
}

export interface AppFigures {
  name: string;
  phase: string;
  generation: number;
  serving_generation: number | null;
  message: string;
  suspended: string;
  ready: number;
  wanted: number;
  replicas: Record<ReplicaState, number>;
  gpus: number;
  dollars_per_hour: number | null;
  has_plan: boolean;
  has_proposal: boolean;
  running: number;
  requests_total: number;
  requests_per_second: number | null;
  statuses: Record<string, number>;
  errors_total: number;
  errors_per_second: number | null;
  prompt_tokens_total: number;
  generation_tokens_total: number;
  generation_tokens_per_second: number | null;
  ttft_seconds: Percentiles | null;
  tbt_seconds: Percentiles | null;
  e2e_seconds: Percentiles | null;
  targets: TargetFigures[];
  /** The operations that the app supports, such as `chat`. Null while the gateway has not loaded it. */
  operations: string[] | null;
}

export interface AppEvent {
  time: string | null;
  type: "Normal" | "Warning";
  reason: string;
  object: string;
  message: string;
  count: number;
}

export interface Attention {
  severity: "error" | "warning" | "info";
  app: string | null;
  reason: string;
  message: string;
  action: string;
}

export interface Overview {
  time: number;
  window_seconds: number;
  gateways: Gateways;
  gpus: number;
  dollars_per_hour: number | null;
  apps: AppFigures[];
  unreadable: { name: string; message: string }[];
  attention: Attention[];
  events: (AppEvent & { app: string })[];
}

export interface Replica {
  id: string;
  state: ReplicaState;
  message: string;
  endpoint: string | null;
  running: number;
  invocations_total: number;
  codes: Record<string, number>;
  seconds: Percentiles | null;
  batch_size: number | null;
  queue: number | null;
  kv_cache_usage: number | null;
  received_bytes_total: Record<string, number>;
}

/** An executor group. */
export interface Node {
  group: string;
  executor: string;
  option: string;
  cell: string | null;
  gpus: number;
  apps: number;
  wanted: number;
  ready: number;
  invocations_total: number;
  invocations_per_second: number | null;
  tokens_total: number;
  tokens_per_second: number | null;
  replicas: Replica[];
}

/** Invocations and tensors between two groups. Without a source, they come from the gateway. */
export interface Edge {
  source: string | null;
  target: string;
  invocations_total: number;
  invocations_per_second: number | null;
  bytes_per_second: number | null;
  kinds: Record<string, number>;
  shared_bytes: boolean;
}

export interface Path {
  index: number;
  planned: number | null;
  actual: number | null;
  requests_total: number;
  requests_per_second?: number | null;
}

export interface PlannedPath {
  type: string;
  cell: string;
  path: number;
  planned: number;
  actual: number | null;
  requests_total: number;
}

export interface Cell {
  name: string;
  gpus: number;
  rate: number | null;
  dollars_per_hour: number | null;
  ready: number;
  wanted: number;
}

export interface Plan {
  rate: number | null;
  target: number | null;
  headroom: number | null;
  gpus: number;
  dollars_per_hour: number | null;
  default_type: string;
  types: { type: string; share: number; planned_per_second: number | null; observed_per_second: number | null }[];
  observed_per_second: number | null;
  /** The executors of the running cells, the one that limits the rate first. */
  limits: { cell_gpus: number; option: string; replicas: number; utilization: number }[];
}

export interface Proposal {
  kind: "cells" | "plan";
  reason: string;
  gpus_now: number;
  gpus: number;
  rate_now: number | null;
  rate: number | null;
  cells: { gpus: number; count: number }[] | null;
  starts: number | null;
  stops: number | null;
  obstacle: string;
}

export interface LiveApp {
  time: number;
  window_seconds: number;
  gateways: Gateways;
  app: AppFigures;
  nodes: Node[];
  edges: Edge[];
  paths: Path[];
  planned_paths: PlannedPath[];
  cells: Cell[];
  plan: Plan | null;
  proposal: Proposal | null;
}

type Values = (number | null)[];

/** The last hours of an app. */
export interface Series {
  step_seconds: number;
  /** The hours that can be read: more than one with Prometheus. */
  longest_hours: number;
  gateways: Gateways;
  times: number[];
  requests_per_second: Values;
  errors_per_second: Values;
  running: Values;
  generation_tokens_per_second: Values;
  ttft_p50: Values;
  ttft_p90: Values;
  tbt_p50: Values;
  tbt_p90: Values;
  e2e_p50: Values;
  e2e_p90: Values;
  ready: Values;
  starting: Values;
  draining: Values;
  failed: Values;
}

export interface RequestSummary {
  id: string;
  app: string;
  operation: string;
  time: number;
  seconds: number;
  first_chunk_seconds: number | null;
  status: number;
  path: number | null;
  prompt_tokens: number | null;
  generation_tokens: number | null;
  retries: number;
  error: string;
}

export interface RequestLists {
  gateways: Gateways;
  recent: RequestSummary[];
  slow: RequestSummary[];
  failed: RequestSummary[];
}

export interface Span {
  name: string;
  kind: "media" | "run" | "invocation";
  group: string;
  replica: string;
  index: number | null;
  attempt: number;
  /** The call of an invocation, which waits for a replica until its start. */
  queued: number | null;
  start: number;
  end: number | null;
  code: string;
  after: number[];
  /** The end of the transfer of the inputs. */
  inputs_read: number | null;
  first_output: number | null;
  items: number;
}

export interface RequestTimeline extends RequestSummary {
  spans: Span[];
  gateways: Gateways;
}

export interface ReplicaLog {
  id: string;
  lines: string[];
  error?: string;
  exit?: { time: string; message: string };
}

export interface ReplicaLogs {
  replicas: ReplicaLog[];
}

/** The executor graph, as the code of the app shows it. */
export interface AppGraph {
  options: Record<string, { task: string }>;
  modalities: { always: string[]; inputs: Record<string, string[]>; outputs: Record<string, string[]> } | null;
}
