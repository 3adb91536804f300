/** What a server is started with. */
export interface Options {
  /** Partitions of a new container. */
  partitions?: number;
  /** A file or directory with databases, containers and items to begin with. */
  seed?: string;
  /** A directory to keep the data in; without it everything is in memory. */
  data?: string;
  /** Give an https endpoint, whose authority is in `certificate`. */
  https?: boolean;
  /** Further flags of `quire emulator`. */
  arguments?: readonly string[];
  /** Milliseconds to wait until the server is ready; 30,000 without it. */
  timeout?: number;
}

/** A running server on 127.0.0.1 with the emulators' key. It ends with this process, also when that is killed. */
export interface Server {
  readonly port: number;
  /** The URL of the account. */
  readonly endpoint: string;
  /** The account's key. */
  readonly key: string;
  readonly connectionString: string;
  /** The certificate of the authority that signed the server's, PEM. */
  certificate(): Promise<string>;
  /** Ends the server. One that has ended already is left alone. */
  stop(): Promise<void>;
}

/** The public key of the emulators, which the server takes. */
export const WELL_KNOWN_KEY: string;

/** The path of the program `quire` in this package. */
export function binary(): string;

/** Resolves when the server answers. */
export function start(options?: Options): Promise<Server>;
