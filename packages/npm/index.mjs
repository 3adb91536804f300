import quire from "./index.js";

export const { WELL_KNOWN_KEY, binary, start } = quire;
export default quire;
