// What the programs for Node share: steps, each caught and printed. What a step returns is printed behind ` = `, to be compared.
const shown = (value) => (value === undefined ? "" : ` = ${JSON.stringify(value)}`);

exports.run = async (prefix, steps) => {
  for (const [name, act] of steps) {
    try {
      console.log(`ok      ${prefix}: ${name}${shown(await act())}`);
    } catch (error) {
      const sql = error.sql ? ` (${String(error.sql).slice(0, 300)})` : "";
      console.log(`FAILED  ${prefix}: ${name} (line ${String(error.message).split("\n")[0]}${sql}`);
    }
  }
  process.exit(0);
};
