import type { ComponentChildren } from "preact";
import { Scroll } from "./scroll";

interface TableProps {
  label: string;
  columns: string[];
  /** A visible name above the table. */
  caption?: string;
  children: ComponentChildren;
}

/** A table in a region that scrolls. The children are its rows. */
export function Table({ label, columns, caption, children }: TableProps) {
  return (
    <Scroll label={label}>
      <table>
        {caption && <caption>{caption}</caption>}
        <thead>
          <tr>
            {columns.map((column) => (
              <th key={column} scope="col">
                {column}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </Scroll>
  );
}
