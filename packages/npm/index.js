// A server for tests: a free port, nothing kept, ended with the process that started it.
"use strict";

const { spawn } = require("node:child_process");
const http = require("node:http");
const path = require("node:path");

/** The public key of the emulators, which the server takes. */
const WELL_KNOWN_KEY = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";
const READY = /^quire is ready on \S*:(\d+)\/$/;
const STOP_MILLISECONDS = 30_000;
/** Variables of the caller that would change what a test sees. */
const OTHERS = ["PORT", "DATA_PATH", "KEY_FILE", "LOG_LEVEL", "PROTOCOL", "GATEWAY_PUBLIC_ENDPOINT"];
const OTHER_PREFIXES = ["QUIRE_", "AZURE_COSMOS_EMULATOR_"];

/** The path of the program `quire` in this package. */
function binary() {
  return path.join(__dirname, "bin", "quire");
}

async function start(options = {}) {
  const child = spawn(binary(), commandLine(options), {
    env: environment(),
    stdio: ["ignore", "pipe", "pipe"],
  });
  const port = await readyPort(child, options.timeout ?? 30_000);
  // A test that forgets to stop the server can end; the server notices.
  child.unref();
  return new Server(child, port, options.https ?? false);
}

class Server {
  #child;
  #https;
  #ended;

  constructor(child, port, https) {
    this.port = port;
    this.#child = child;
    this.#https = https;
    this.#ended = new Promise((resolve) => child.once("exit", resolve));
  }

  get endpoint() {
    return this.#https ? `https://localhost:${this.port}/` : `http://127.0.0.1:${this.port}/`;
  }

  get key() {
    return WELL_KNOWN_KEY;
  }

  get connectionString() {
    return `AccountEndpoint=${this.endpoint};AccountKey=${this.key};`;
  }

  certificate() {
    return fetchText(`http://127.0.0.1:${this.port}/_explorer/emulator.pem`);
  }

  async stop() {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) {
      return;
    }
    this.#child.ref();
    this.#child.kill("SIGTERM");
    const late = setTimeout(() => this.#child.kill("SIGKILL"), STOP_MILLISECONDS);
    await this.#ended;
    clearTimeout(late);
  }
}

function commandLine({ partitions, seed, data, arguments: more = [] }) {
  const words = ["emulator", "--listen", "127.0.0.1:0", "--log", "error", "--stop-with", String(process.pid)];
  words.push(...(data === undefined ? ["--ephemeral"] : ["--data", data]));
  if (partitions !== undefined) {
    words.push("--partitions", String(partitions));
  }
  if (seed !== undefined) {
    words.push("--seed", seed);
  }
  return [...words, ...more];
}

function environment() {
  const isOurs = ([name]) => !OTHERS.includes(name) && !OTHER_PREFIXES.some((prefix) => name.startsWith(prefix));
  return Object.fromEntries(Object.entries(process.env).filter(isOurs));
}

/** Reads the line that the server prints when it is ready. */
function readyPort(child, timeout) {
  let said = "";
  let log = "";
  child.stderr.on("data", (part) => (log = (log + part).slice(-10_000)));
  return new Promise((resolve, reject) => {
    const failed = (reason) => {
      clearTimeout(late);
      child.kill("SIGKILL");
      reject(new Error(`${reason}\n${log.trim()}`));
    };
    const late = setTimeout(() => failed(`quire was not ready after ${timeout} ms`), timeout);
    child.once("error", (error) => failed(`quire cannot be started: ${error.message}`));
    // After its last words.
    child.once("close", (code, signal) => failed(`quire ended with ${code ?? signal}`));
    child.stdout.on("data", (part) => {
      said += part;
      if (!said.endsWith("\n")) {
        return;
      }
      const port = READY.exec(said.trimEnd())?.[1];
      if (port === undefined) {
        failed(`quire said ${JSON.stringify(said)}`);
        return;
      }
      clearTimeout(late);
      child.removeAllListeners("close");
      // Later output is read, so that the server never waits for a reader; it does not keep this process running.
      child.stdout.unref();
      child.stderr.unref();
      resolve(Number(port));
    });
  });
}

function fetchText(url) {
  return new Promise((resolve, reject) => {
    const asked = http.get(url, { agent: false }, (answer) => {
      let text = "";
      answer.setEncoding("utf8");
      answer.on("data", (part) => (text += part));
      answer.on("end", () => (answer.statusCode === 200 ? resolve(text) : reject(new Error(`${url}: ${answer.statusCode}`))));
    });
    asked.on("error", reject);
  });
}

module.exports = { WELL_KNOWN_KEY, binary, start };
