import "uplot/dist/uPlot.min.css";
import "./styles.css";
import { render } from "preact";
import { applyScheme } from "./components/scheme";
import { Console } from "./console";

applyScheme();
const root = document.getElementById("console");
if (root) render(<Console />, root);
