"use strict";
// The table of contexts: rows from the embedded data, sorted and filtered on the page itself.
(() => {
  const found = JSON.parse(document.getElementById("data").textContent);
  const table = document.getElementById("contexts");
  const filter = document.getElementById("filter");
  const choice = document.getElementById("policy");
  const count = document.getElementById("shown");
  let column = 1, falling = true;

  const amount = (ms) => {
    if (ms === null) return "";
    const size = Math.abs(ms);
    if (size >= 3.6e7) return (ms / 3.6e6).toFixed(1) + " h";
    if (size >= 1e4) return (ms / 1e3).toFixed(0) + " s";
    if (size >= 1e3) return (ms / 1e3).toFixed(1) + " s";
    return Number(ms.toPrecision(3)) + " ms";
  };
  const percent = (share) => share === null ? "" : (100 * share).toFixed(1) + " %";
  const plain = (value) => value === null ? "" : String(value);
  const columns = [
    ["context", (row) => row.path, plain],
    ["predictions", (row) => row.outcomes, plain],
    ...(found.contexts.some((row) => row.not_startable)
      ? [["not startable", (row) => row.not_startable, plain]] : []),
    ["earned", (row, own) => own.utility, amount],
    ["against " + found.against, (row, own) => own.utility - reference(row), amount],
    ["of best fixed", (row, own) => own.share_of_best_fixed, percent],
    ["hits", (row, own) => own.hits, plain],
    ["misses", (row, own) => own.misses, plain],
    ["right", (row, own) => own.success_rate, percent],
    ["recall", (row, own) => own.recall, percent],
    ["threshold", (row, own) => own.threshold, (t) => t === null ? "" : t.toFixed(3)],
    ["turns", (row, own) => own.oscillations, plain],
    ["settled after", (row, own) => own.convergence, plain],
  ];
  const reference = (row) => (row.policies[found.against] || { utility: 0 }).utility;

  const draw = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = found.contexts
      .filter((row) => words.every((word) => (row.tenant + " " + row.path).toLowerCase().includes(word)))
      .map((row) => columns.map(([, value]) => value(row, row.policies[choice.value])));
    rows.sort((a, b) => {
      const [x, y] = [a[column], b[column]];
      if (x === null || y === null) return (x === null) - (y === null);
      const order = typeof x === "string" ? x.localeCompare(y) : x - y;
      return falling ? -order : order;
    });
    const body = document.createElement("tbody");
    for (const row of rows) {
      const line = body.insertRow();
      row.forEach((value, place) => {
        const cell = line.insertCell();
        cell.textContent = columns[place][2](value);
        if (columns[place][0].startsWith("against ") && value) cell.className = value > 0 ? "up" : "down";
      });
    }
    table.tBodies[0].replaceWith(body);
    count.textContent = rows.length + " of " + found.known + " contexts";
    [...table.tHead.rows[0].cells].forEach((cell, place) => {
      cell.setAttribute("aria-sort", place !== column ? "none" : falling ? "descending" : "ascending");
    });
  };

  const head = table.createTHead().insertRow();
  columns.forEach(([name], place) => {
    const cell = document.createElement("th");
    const button = document.createElement("button");
    button.textContent = name;
    button.addEventListener("click", () => {
      falling = place === column ? !falling : place > 0;
      column = place;
      draw();
    });
    cell.append(button);
    head.append(cell);
  });
  for (const name of found.policies) choice.add(new Option(name, name));
  choice.value = found.winner ?? found.policies[0];
  filter.addEventListener("input", draw);
  choice.addEventListener("change", draw);
  draw();
})();
