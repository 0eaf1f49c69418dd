/** Positions of the executors and of the edges between them. */

import { Graph, layout } from "@dagrejs/dagre";
import type { Edge, Node } from "../api/types";

export const NODE_WIDTH = 224;
export const NODE_HEIGHT = 112;
export const GATEWAY = "gateway";

export interface Placed {
  x: number;
  y: number;
}

export interface PlacedGraph {
  width: number;
  height: number;
  /** The centers by group. */
  nodes: Map<string, Placed>;
  /** The points of the lines by `edgeKey`. */
  edges: Map<string, Placed[]>;
}

export function edgeKey(edge: Edge): string {
  return `${edge.source ?? GATEWAY} → ${edge.target}`;
}

/** Arranges the graph in layers from left to right, or from the top if the page is narrow. */
export function placeGraph(nodes: Node[], edges: Edge[], narrow: boolean): PlacedGraph {
  const graph = new Graph();
  graph.setGraph({ rankdir: narrow ? "TB" : "LR", ranksep: narrow ? 64 : 140, nodesep: 28, marginx: 8, marginy: 8 });
  graph.setDefaultEdgeLabel(() => ({}));
  graph.setNode(GATEWAY, { width: 90, height: 40 });
  for (const node of nodes) graph.setNode(node.group, { width: NODE_WIDTH, height: NODE_HEIGHT });
  for (const edge of edges) {
    if (graph.hasNode(edge.target) && graph.hasNode(edge.source ?? GATEWAY)) {
      graph.setEdge(edge.source ?? GATEWAY, edge.target);
    }
  }
  layout(graph);
  const placed = new Map<string, Placed>();
  for (const name of graph.nodes()) {
    const { x = 0, y = 0 } = graph.node(name);
    placed.set(name, { x, y });
  }
  const lines = new Map<string, Placed[]>();
  for (const edge of graph.edges()) lines.set(`${edge.v} → ${edge.w}`, graph.edge(edge).points ?? []);
  const { width = 0, height = 0 } = graph.graph();
  return { width, height, nodes: placed, edges: lines };
}
