// Compiled, not run: the declarations say what the package has.
import quire, { start, type Options, type Server } from "quire-db";

const options: Options = { partitions: 5, seed: "seed.json", https: true, arguments: ["--enable-faults"], timeout: 1000 };
const server: Server = await start(options);
const shown: [string, string, string, number] = [server.endpoint, server.key, server.connectionString, server.port];
const pem: string = await server.certificate();
await server.stop();
// @ts-expect-error there is no such option
await quire.start({ partition: 5 });
export default [shown, pem, quire.binary(), quire.WELL_KNOWN_KEY];
