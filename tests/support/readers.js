// Node's readers of a request target. Reads one JSON object per line, and writes one JSON array of answers per line.
//
// A target is a string with one character per byte, like request.url in Node's HTTP server. An answer maps each reader
// to the path and the query it finds. Readers that throw are omitted.
"use strict";
const path = require("path");
const readline = require("readline");
const url = require("url");

process.noDeprecation = true; // url.parse() is here because servers still use it
const BASE = "http://localhost/";
const UNRESERVED = /%(2[de]|3[0-9]|4[1-9a-f]|5[0-9af]|6[1-9a-f]|7[0-9ae])/gi;

const whatwg = (target) => {
  const read = new URL(target, BASE);
  return [read.pathname, read.search];
};
const legacy = (target, slashesDenoteHost) => {
  const read = url.parse(target, false, slashesDenoteHost);
  return [read.pathname ?? "/", read.search ?? ""];
};
const READERS = {
  "new URL": whatwg,
  // A framework that parses the result of another parser.
  "new URL twice": (target) => {
    const [first, search] = whatwg(target);
    return [whatwg(first)[0], search];
  },
  // A front end that removes dot segments and keeps empty ones, such as Envoy.
  "front, then new URL": (target) => {
    const front = new URL("http://localhost" + target);
    return whatwg(front.pathname + front.search);
  },
  "url.parse": (target) => legacy(target, false),
  "url.parse with hosts": (target) => legacy(target, true),
  "front, then url.parse with hosts": (target) => {
    const front = new URL("http://localhost" + target);
    return legacy(front.pathname + front.search, true);
  },
};

// A file server normalizes the path after decoding it.
const normalized = ([found, search]) => [
  path.posix.normalize(found.replace(UNRESERVED, (escape) => decodeURIComponent(escape))),
  search,
];

const answer = (target) => {
  const found = {};
  for (const [name, read] of Object.entries(READERS)) {
    try {
      found[name] = read(target);
      found[name + ", normalized"] = normalized(found[name]);
    } catch {
      // An invalid URL: the server has nothing to serve.
    }
  }
  return found;
};

const origin = (text) => {
  try {
    const { protocol, hostname, port, host } = new URL(text);
    return { protocol, hostname, port, host };
  } catch {
    return null;
  }
};

readline.createInterface({ input: process.stdin }).on("line", (line) => {
  const { targets, urls } = JSON.parse(line);
  process.stdout.write(JSON.stringify(targets ? targets.map(answer) : urls.map(origin)) + "\n");
});
