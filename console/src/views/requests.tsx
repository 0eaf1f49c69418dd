import { useState } from "preact/hooks";
import { usePolled } from "../api/hooks";
import type { RequestLists, RequestSummary } from "../api/types";
import { MissingGateways, Problem } from "../components/notices";
import { Table } from "../components/table";
import { clock, number, seconds } from "../format";
import { href } from "../routes";
import { AppHeading } from "./app";

const LISTS = ["recent", "slow", "failed"] as const;
const REFRESH_SECONDS = 2;

/** The last requests, the slowest and those that failed. */
export function RequestsView({ app }: { app: string | null }) {
  const [list, setList] = useState<(typeof LISTS)[number]>("recent");
  const query = app === null ? "" : `?app=${encodeURIComponent(app)}`;
  const { value, error } = usePolled<RequestLists>(`admin/v1/requests${query}`, REFRESH_SECONDS);
  return (
    <>
      {app === null ? <h1>Requests</h1> : <AppHeading name={app} current="requests" />}
      <Problem error={error} />
      {value && (
        <>
          <MissingGateways gateways={value.gateways} />
          <fieldset class="ranges">
            <legend class="hidden">Requests</legend>
            {LISTS.map((name) => (
              <label key={name}>
                <input type="radio" name="list" checked={name === list} onChange={() => setList(name)} /> {name} (
                {value[name].length})
              </label>
            ))}
          </fieldset>
          <RequestTable requests={value[list]} />
        </>
      )}
      <p class="quiet">Prompts, media and outputs are not kept.</p>
    </>
  );
}

function RequestTable({ requests }: { requests: RequestSummary[] }) {
  if (requests.length === 0) return <p class="quiet">No requests.</p>;
  return (
    <Table
      label="Requests"
      columns={["Request", "Time", "App", "Operation", "Status", "Duration", "First output", "Tokens", "Path"]}
    >
      {requests.map((request) => (
        // Clients may give several requests one id.
        <tr key={`${request.id} ${request.time}`}>
          <th scope="row">
            <a href={href({ view: "request", id: request.id })}>{request.id.slice(0, 16)}</a>
            {request.error && <div class="message">{request.error}</div>}
          </th>
          <td>{clock(request.time)}</td>
          <td>{request.app}</td>
          <td>{request.operation}</td>
          <td class={request.status >= 400 ? "bad" : ""}>
            {request.status}
            {request.retries > 0 && ` (${request.retries} retried)`}
          </td>
          <td>{seconds(request.seconds)}</td>
          <td>{seconds(request.first_chunk_seconds)}</td>
          <td>
            {number(request.prompt_tokens)} + {number(request.generation_tokens)}
          </td>
          <td>{request.path ?? "–"}</td>
        </tr>
      ))}
    </Table>
  );
}
