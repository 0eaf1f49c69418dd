import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Edge, Node } from "../api/types";
import { bytes, medianAndTail, number, rate } from "../format";
import { edgeKey, GATEWAY, NODE_HEIGHT, NODE_WIDTH, type Placed, placeGraph } from "./layout";
import { Scroll } from "./scroll";
import { Table } from "./table";

const NARROW = 720;
const SHOWN_REPLICAS = 20;
const KINDS: Record<string, string> = {
  same_process: "same process",
  same_node: "same node",
  pulled: "network",
};

/** Returns the groups with invocations since the last figures. */
function useActiveGroups(nodes: Node[]): Set<string> {
  const last = useRef({ nodes, totals: totalsOf(nodes), active: new Set<string>() });
  if (last.current.nodes !== nodes) {
    const { totals } = last.current;
    const active = nodes.filter((node) => node.invocations_total > (totals.get(node.group) ?? Infinity));
    last.current = { nodes, totals: totalsOf(nodes), active: new Set(active.map((node) => node.group)) };
  }
  return last.current.active;
}

function totalsOf(nodes: Node[]): Map<string, number> {
  return new Map(nodes.map((node) => [node.group, node.invocations_total]));
}

/** The executor groups, and what flows between them. Groups with invocations and edges in use are highlighted. */
export function ExecutorGraph({ label, nodes, edges }: { label: string; nodes: Node[]; edges: Edge[] }) {
  const frame = useRef<HTMLElement>(null);
  const [narrow, setNarrow] = useState(false);
  const active = useActiveGroups(nodes);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setNarrow((entry?.contentRect.width ?? NARROW) < NARROW));
    if (frame.current) observer.observe(frame.current);
    return () => observer.disconnect();
  }, []);
  const shape = JSON.stringify([nodes.map((node) => node.group), edges.map(edgeKey), narrow]);
  // The figures do not change the positions.
  const placed = useMemo(() => placeGraph(nodes, edges, narrow), [shape]);
  const gateway = placed.nodes.get(GATEWAY);
  return (
    <Scroll label={label} class="graph" frame={frame}>
      <svg width={placed.width} height={placed.height} role="group" aria-label="Executors and the data between them">
        <defs>
          <marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
            <path d="M0 0 8 4 0 8z" class="arrow" />
          </marker>
        </defs>
        {edges.map((edge) => (
          <EdgeLine key={edgeKey(edge)} edge={edge} points={placed.edges.get(edgeKey(edge)) ?? []} />
        ))}
        {gateway && (
          <g transform={`translate(${gateway.x - 45} ${gateway.y - 20})`} class="node gateway">
            <rect width={90} height={40} rx={20} />
            <text x={45} y={25} text-anchor="middle">
              gateway
            </text>
          </g>
        )}
        {nodes.map((node) => (
          <NodeBox
            key={node.group}
            node={node}
            isActive={active.has(node.group)}
            center={placed.nodes.get(node.group) ?? { x: 0, y: 0 }}
          />
        ))}
      </svg>
    </Scroll>
  );
}

function NodeBox({ node, isActive, center }: { node: Node; isActive: boolean; center: Placed }) {
  const running = total(node, (replica) => replica.running) ?? 0;
  const batch = total(node, (replica) => replica.batch_size);
  const queue = total(node, (replica) => replica.queue);
  const figures = [`${number(running)} running`, rate(node.invocations_per_second)];
  const more = [
    batch === null ? "" : `batch ${number(batch)}`,
    queue === null ? "" : `queue ${number(queue)}`,
    node.tokens_per_second ? `${number(node.tokens_per_second)} tokens/s` : "",
  ];
  return (
    <g
      transform={`translate(${center.x - NODE_WIDTH / 2} ${center.y - NODE_HEIGHT / 2})`}
      class={`node ${running > 0 || isActive ? "busy" : ""} ${node.ready < node.wanted ? "degraded" : ""}`}
      data-group={node.group}
      data-ready={node.ready}
      data-wanted={node.wanted}
    >
      <title>{describe(node)}</title>
      <rect width={NODE_WIDTH} height={NODE_HEIGHT} rx={8} />
      <text x={12} y={24} class="name">
        {shorten(node.executor)}
      </text>
      <text x={NODE_WIDTH - 12} y={24} text-anchor="end" class="ready">
        {node.ready}/{node.wanted} ready
      </text>
      <text x={12} y={43} class="detail">
        {shorten([node.cell === null ? "" : `cell ${node.cell}`, node.option].filter(Boolean).join(" · "), 32)}
      </text>
      {node.replicas.slice(0, SHOWN_REPLICAS).map((replica, index) => (
        <circle
          key={replica.id}
          cx={18 + (index % 10) * 20}
          cy={58 + Math.floor(index / 10) * 13}
          r={5}
          class={`replica ${replica.state} ${replica.running > 0 ? "running" : ""}`}
          data-replica={replica.id}
        >
          <title>{`${replica.id}: ${replica.state} ${replica.message}`}</title>
        </circle>
      ))}
      {node.replicas.length > SHOWN_REPLICAS && (
        <text x={NODE_WIDTH - 12} y={62} text-anchor="end" class="detail">
          of {node.replicas.length}
        </text>
      )}
      <text x={12} y={88} class="detail">
        {figures.join(" · ")}
      </text>
      <text x={12} y={104} class="detail">
        {more.filter(Boolean).join(" · ")}
      </text>
    </g>
  );
}

/** Returns the sum over the replicas that have the figure, or null. */
function total(node: Node, figure: (replica: Node["replicas"][number]) => number | null): number | null {
  const known = node.replicas.map(figure).filter((value): value is number => value !== null);
  return known.length === 0 ? null : known.reduce((sum, value) => sum + value, 0);
}

function shorten(text: string, length = 18): string {
  return text.length <= length ? text : `${text.slice(0, length - 1)}…`;
}

function describe(node: Node): string {
  return `${node.executor} (${node.group}): ${node.ready} of ${node.wanted} ready, ${node.gpus} GPUs each`;
}

function EdgeLine({ edge, points }: { edge: Edge; points: Placed[] }) {
  const middle = points[Math.floor(points.length / 2)];
  if (middle === undefined) return null;
  const kinds = Object.keys(edge.kinds);
  const label = edgeFigures(edge);
  return (
    <g class={`edge ${edge.invocations_per_second ? "active" : ""} ${kinds.includes("pulled") ? "network" : ""}`}>
      <title>{`${edge.source ?? GATEWAY} to ${edge.target}: ${label.join(", ")}`}</title>
      <polyline points={points.map(({ x, y }) => `${x},${y}`).join(" ")} marker-end="url(#arrow)" />
      {label.map((text, index) => (
        <text key={text} x={middle.x} y={middle.y - 6 - 13 * (label.length - 1 - index)} text-anchor="middle">
          {text}
        </text>
      ))}
    </g>
  );
}

function edgeFigures(edge: Edge): string[] {
  const figures = [rate(edge.invocations_per_second)];
  if (edge.bytes_per_second !== null) figures.push(`${edge.shared_bytes ? "≈ " : ""}${bytes(edge.bytes_per_second)}/s`);
  const kinds = Object.keys(edge.kinds).map((kind) => KINDS[kind] ?? kind);
  if (kinds.length > 0) figures.push(kinds.join(", "));
  return figures;
}

/** The figures of the graph as a table, with a row for each replica. */
export function ReplicaTable({ nodes }: { nodes: Node[] }) {
  return (
    <Table
      label="Replicas"
      columns={["Replica", "Executor", "State", "Running", "Invocations", "p50 / p99", "Batch", "Queue", "KV cache"]}
    >
      {nodes.flatMap((node) =>
        node.replicas.map((replica) => (
          <tr key={replica.id}>
            <th scope="row">
              {replica.id}
              {replica.message && <div class="message">{replica.message}</div>}
            </th>
            <td>{node.executor}</td>
            <td>
              <span class={`state state-${replica.state}`}>{replica.state}</span>
            </td>
            <td>{replica.running}</td>
            <td>{number(replica.invocations_total)}</td>
            <td>{medianAndTail(replica.seconds)}</td>
            <td>{number(replica.batch_size)}</td>
            <td>{number(replica.queue)}</td>
            <td>{replica.kv_cache_usage === null ? "–" : `${number(replica.kv_cache_usage * 100)} %`}</td>
          </tr>
        )),
      )}
    </Table>
  );
}
