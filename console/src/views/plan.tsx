import { useState } from "preact/hooks";
import { appPath, sendJson } from "../api/client";
import type { LiveApp, Plan, Proposal } from "../api/types";
import { Confirmation } from "../components/dialog";
import { Figure } from "../components/notices";
import { Table } from "../components/table";
import { dollars, number, plural, rate, share } from "../format";
import { useIsAdmin } from "../session";

/** The plan of an app: what it promises, its headroom and cells, and a proposal to approve. */
export function PlanSection({ live }: { live: LiveApp }) {
  return (
    <>
      {live.proposal && <ProposalSection name={live.app.name} proposal={live.proposal} />}
      {live.plan && <PlanFigures live={live} plan={live.plan} />}
    </>
  );
}

function PlanFigures({ live, plan }: { live: LiveApp; plan: Plan }) {
  return (
    <section aria-labelledby="plan">
      <h2 id="plan">Plan</h2>
      <dl class="figures">
        <Figure label="Promised" value={rate(plan.rate)} />
        <Figure label="Target" value={rate(plan.target)} />
        <Figure label="Observed" value={rate(plan.observed_per_second)} />
        <Figure label="Headroom" value={share(plan.headroom)} />
        <Figure label="GPUs" value={number(plan.gpus)} />
        {plan.dollars_per_hour !== null && <Figure label="Cost" value={dollars(plan.dollars_per_hour)} />}
      </dl>
      {plan.limits.length > 0 && (
        <ul>
          {plan.limits.map((limit) => (
            <li key={`${limit.cell_gpus} ${limit.option}`}>
              {limit.option} ({limit.replicas} in a cell of {plural(limit.cell_gpus, "GPU")}):{" "}
              {share(limit.utilization)} of its time is used
            </li>
          ))}
        </ul>
      )}
      <div class="columns">
        <Table label="Cells" caption="Cells" columns={["Cell", "GPUs", "Rate", "Cost", "Replicas ready"]}>
          {live.cells.map((cell) => (
            <tr key={cell.name}>
              <th scope="row">{cell.name}</th>
              <td>{cell.gpus}</td>
              <td>{rate(cell.rate)}</td>
              <td>{dollars(cell.dollars_per_hour)}</td>
              <td>
                {cell.ready}/{cell.wanted}
              </td>
            </tr>
          ))}
        </Table>
        <Table label="Request types" caption="Request types" columns={["Type", "Share", "Planned", "Observed"]}>
          {plan.types.map((type) => (
            <tr key={type.type}>
              <th scope="row">
                {type.type}
                {type.type === plan.default_type && <span class="tag">default</span>}
              </th>
              <td>{share(type.share)}</td>
              <td>{rate(type.planned_per_second)}</td>
              <td>{rate(type.observed_per_second)}</td>
            </tr>
          ))}
        </Table>
      </div>
    </section>
  );
}

/** A proposed change with its benefit and its cost. */
function ProposalSection({ name, proposal }: { name: string; proposal: Proposal }) {
  const [asked, setAsked] = useState(false);
  const isAdmin = useIsAdmin();
  const change = `${plural(proposal.gpus_now, "GPU")} to ${plural(proposal.gpus, "GPU")}`;
  return (
    <section aria-labelledby="proposal" class="proposal">
      <h2 id="proposal">Proposal: {proposal.kind === "plan" ? "another plan" : "other cells"}</h2>
      <p>{proposal.reason}</p>
      {proposal.obstacle && <p class="warning">{proposal.obstacle}</p>}
      <dl class="figures">
        <Figure label="Benefit" value={`${rate(proposal.rate_now)} to ${rate(proposal.rate)}`} />
        <Figure label="Cost" value={change} />
        {proposal.starts !== null && <Figure label="Starts" value={plural(proposal.starts, "replica")} />}
        {proposal.stops !== null && <Figure label="Stops" value={plural(proposal.stops, "replica")} />}
      </dl>
      {isAdmin && (
        <button type="button" class="primary" onClick={() => setAsked(true)}>
          Approve…
        </button>
      )}
      {asked && (
        <Confirmation
          title={`Approve the proposal for ${name}?`}
          action="Approve"
          run={() => sendJson("PUT", `${appPath(name)}/scale`, { approve: true })}
          onClose={() => setAsked(false)}
        >
          <p>The app changes from {change}.</p>
        </Confirmation>
      )}
    </section>
  );
}
