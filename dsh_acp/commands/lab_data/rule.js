"use strict";
/* The rule: what a log says a request must be, and whether a request is that.
 *
 * Messages and header fields stay the JSON text that the log holds, so that "equal" means equal
 * characters, as it does in the program. Nothing here touches the page. */
const Rule = (() => {
  const LOOP = "@deepseek-ai/dsh-agent-loop";
  const ROWS = new Set(["text-chunks", "reasoning-chunks", "tool-call-chunks"]);
  const VISIBLE = new Set(["user/message", "assistant/message", "tool/result"]);
  const IN_STEP = new Set(["assistant/chunk", "tool/call"]);
  const IN_TURN = new Set(["request/context", "todo/write"]);
  const KEYS = new Set(["type", "seq", "time", "data", "ignorable", "sourceEventSeqs", "surfaceOp", "seq0", "time0"]);
  const FIELDS = ["provider", "model", "reasoningEffort", "temperature", "maxTokens", "stop", "system", "tools"];

  /* Something that a sound log cannot contain. */
  class Unsound extends Error {}
  const isObject = (v) => typeof v === "object" && v !== null && !Array.isArray(v);

  // ------------------------------------------------------------------ JSON text

  const skipString = (text, at) => {
    for (let end = at + 1; ; end += 1) {
      end = text.indexOf('"', end);
      let slashes = 0;
      while (text[end - 1 - slashes] === "\\") slashes += 1;
      if (slashes % 2 === 0) return end + 1;
    }
  };
  const skipSpace = (text, at) => { while (text.charCodeAt(at) <= 32) at += 1; return at; };
  const skipValue = (text, at) => {
    if (text[at] === '"') return skipString(text, at);
    if (text[at] !== "{" && text[at] !== "[") {
      while (at < text.length && !",]} \t\r\n".includes(text[at])) at += 1;
      return at;
    }
    for (let depth = 0; ; ) {
      const c = text[at];
      if (c === '"') { at = skipString(text, at); continue; }
      if (c === "{" || c === "[") depth += 1;
      else if (c === "}" || c === "]") { depth -= 1; if (depth === 0) return at + 1; }
      at += 1;
    }
  };

  /* The members of an object's (valid) JSON text, each value as the text it is written in. */
  const members = (text) => {
    const found = new Map();
    let at = skipSpace(text, 0) + 1;
    for (;;) {
      at = skipSpace(text, at);
      if (text[at] === ",") { at = skipSpace(text, at + 1); }
      if (text[at] !== '"') return found;
      const keyEnd = skipString(text, at);
      const key = JSON.parse(text.slice(at, keyEnd));
      const from = skipSpace(text, text.indexOf(":", keyEnd) + 1);
      at = skipValue(text, from);
      found.set(key, text.slice(from, at));
    }
  };
  const elements = (text) => {
    const found = [];
    let at = skipSpace(text, 0) + 1;
    for (;;) {
      at = skipSpace(text, at);
      if (text[at] === ",") at = skipSpace(text, at + 1);
      if (at >= text.length || text[at] === "]") return found;
      const end = skipValue(text, at);
      found.push(text.slice(at, end));
      at = end;
    }
  };

  /* A value's text in one spelling: escapes, spaces and number forms no longer tell two apart. */
  const plain = (text) => JSON.stringify(JSON.parse(text));

  // ------------------------------------------------------------------ lines

  /* One line of a log. `value` is its JSON, or undefined where it does not parse. `count` is the
   * number of events it stands for: more than one for a packed run of chunks. */
  const readLine = (text) => {
    let value;
    try { value = JSON.parse(text); } catch { value = undefined; }
    const row = isObject(value) && ROWS.has(value.type);
    const packed = row && isObject(value.data) ? value.data.texts ?? value.data.args : null;
    return {
      text, value, row,
      type: isObject(value) && typeof value.type === "string" ? value.type : "",
      seq: isObject(value) ? (row ? value.seq0 : value.seq) : undefined,
      count: Array.isArray(packed) ? packed.length : 1,
    };
  };

  // ------------------------------------------------------------------ the fold of a log

  /* What follows from the lines fed so far: open turn and step, surface, header. `issue` says what
   * a sound log cannot contain, and `issueAt` in which line; nothing is folded after it. */
  class Log {
    constructor() {
      Object.assign(this, {
        seq: 0, turn: null, step: null, lastTurn: 0, lastStep: 0, sawStep: false,
        nodes: [], derived: [], header: null, issue: null, issueAt: null,
      });
    }

    /* Take in one line; `at` names it later. */
    feed(line, at) {
      if (this.issue !== null) return;
      try {
        this.take(line, at);
      } catch (error) {
        this.issue = error instanceof Unsound ? error.message : `the line after event ${this.seq - 1} cannot be read: ${error.message}`;
        this.issueAt = at;
      }
    }

    take(line, at) {
      need(line.type && line.value.data !== undefined, "it is not an event");
      need(Object.keys(line.value).every((key) => KEYS.has(key)), "it has a key that no event has");
      if (line.row) { this.takeRow(line); return; }
      const { type, seq } = line;
      if (seq !== this.seq) throw new Unsound(`event ${this.seq} is missing: event ${seq ?? -1} stands in its place`);
      if (line.value.time === undefined || (line.value.seq0 ?? -1) !== -1) throw new Unsound(`event ${seq} has no event's envelope`);
      this.seq += 1;
      if (VISIBLE.has(type)) {
        if (type !== "user/message") this.checkPlace(line);
        this.place(line, at);
      } else if (type === "request/header") {
        this.checkTurn(line);
        this.header = { ...readHeader(line), at };
      } else if (IN_STEP.has(type)) this.checkPlace(line);
      else if (/^(turn|step)\/(start|end)$/.test(type)) this.cross(line);
      else if (IN_TURN.has(type)) this.checkTurn(line);
    }

    takeRow(line) {
      const { data, seq0, time0 } = line.value;
      if (seq0 !== this.seq) throw new Unsound(`event ${this.seq} is missing: a row from ${seq0 ?? -1} is in its place`);
      const members = line.type === "tool-call-chunks" ? data.args : data.texts;
      if (!members?.length || data.dt?.length !== members.length - 1 || time0 === undefined) {
        throw new Unsound(`the packed row at event ${this.seq} is malformed`);
      }
      this.sameStep(line.type, data, this.seq);
      this.seq += members.length;
    }

    cross({ type, seq, value: { data: { turn = -1, step = -1 } } }) {
      const here = turn === this.turn;
      const fits = {
        "turn/start": this.turn === null && turn === this.lastTurn + 1,
        "step/start": here && this.step === null && step === this.lastStep + 1,
        "step/end": true,
        "turn/end": here && this.step === null,
      }[type];
      if (!fits) throw new Unsound(`${type} at event ${seq} is out of place`);
      if (type === "step/end") this.sameStep(type, { turn, step }, seq);
      if (type === "turn/start") { this.turn = this.lastTurn = turn; this.lastStep = 0; }
      if (type === "step/start") { this.step = this.lastStep = step; this.sawStep = true; }
      if (type === "step/end") this.step = null;
      if (type === "turn/end") this.turn = null;
    }

    checkPlace(line) {
      if (isObject(line.value.surfaceOp)) this.checkTurn(line);
      else this.sameStep(line.type, line.value.data, line.seq);
    }
    sameStep(type, { turn = -1, step = -1 }, seq) {
      if (this.step === null || turn !== this.turn || step !== this.step) {
        throw new Unsound(`${type} at event ${seq} belongs to no open step`);
      }
    }
    checkTurn({ type, seq }) {
      if (this.turn === null) throw new Unsound(`${type} at event ${seq} belongs to no open turn`);
    }

    place(line, at) {
      const { type, seq, value: { surfaceOp: op, sourceEventSeqs: cited = [] } } = line;
      need(op === undefined || op === "append" || (isObject(op) && op.op === "replace"), "its surfaceOp is invalid");
      const says = (what) => new Unsound(`${type} at event ${seq} ${what}`);
      if (op === undefined) throw says("has no place on the surface");
      if (cited.some((one) => one >= seq)) throw says("cites an event that comes later");
      const node = { seq, at, text: derive(line) };
      if (op === "append") {
        this.nodes.push(node);
        if (node.text !== null) this.derived.push(node);
        return;
      }
      const start = this.nodes.findIndex((one) => one.seq === op.start);
      const end = this.nodes.findIndex((one, i) => i >= start && one.seq === op.end);
      if (start < 0 || end < 0) throw says("replaces a span that is not on the surface");
      const known = new Set(cited);
      if (this.nodes.slice(start, end + 1).some((one) => !known.has(one.seq))) throw says("hides events that it does not cite");
      this.nodes.splice(start, end - start + 1, node);
      this.derived = this.nodes.filter((one) => one.text !== null);
    }
  }
  const need = (fact, words) => { if (!fact) throw new Error(words); };

  // ------------------------------------------------------------------ derivation

  /* The message that a surface line shows the model, as JSON text; null for an empty answer. */
  const derive = (line) => {
    const data = members(line.text).get("data");
    if (line.type === "user/message") return data;
    need(isObject(line.value.data.message), "it has no message");
    if (line.type === "assistant/message" && !line.value.data.message.content.length) return null;
    return members(data).get("message");
  };

  /* A header's fields as JSON texts, empty ones absent. Recorded fixtures may hold a placeholder
   * such as "{{tools}}" for the tools; it reads as absent. */
  const readHeader = (line) => {
    const all = members(members(members(line.text).get("data")).get("header"));
    const config = members(all.get("config"));
    need(config.has("provider") && config.has("model"), "its header names no model");
    const kept = (value, ...empty) => (value === undefined || empty.includes(plain(value)) ? undefined : plain(value));
    const list = (value) => (value?.startsWith("[") ? elements(value) : []);
    const tools = list(all.get("tools")).map(readTool);
    const found = Object.fromEntries(FIELDS.slice(0, 6).map((field) => [field, kept(config.get(field))]));
    return {
      ...found, system: kept(all.get("system"), '""'), tools: tools.length ? `[${tools.join(",")}]` : undefined,
      prefix: list(all.get("messagePrefix")), suffix: list(all.get("messageSuffix")),
    };
  };
  /* The key order inside a schema is content: the model reads it. */
  const readTool = (text) => {
    const tool = members(text);
    const [name, description] = ["name", "description"].map((key) => plain(tool.get(key) ?? '""'));
    return `{"name":${name},"description":${description},"parameters":${tool.get("parameters") ?? "{}"}}`;
  };

  /* The messages of a request made now, each with the line it comes from. */
  const messages = (log) => {
    if (!log.header?.prefix.length && !log.header?.suffix.length) return log.derived;
    const framing = (texts) => texts.map((text) => ({ text, at: log.header.at }));
    return [...framing(log.header.prefix), ...log.derived, ...framing(log.header.suffix)];
  };

  /* The request that a conversation with this log would send now. */
  const build = (log, sessionId) => ({
    frozen: true, messagesFrozen: true, sessionId, header: { ...log.header },
    messages: messages(log).map((message) => message.text),
  });

  // ------------------------------------------------------------------ the check

  /* The checks before a request leaves, in order. `run` gives null, or what is wrong. */
  const CHECKS = [
    ["frozen", "The request is frozen",
      ({ request }) => !request.frozen && "a loop-built request must be frozen"],
    ["session", "It carries a session id",
      ({ request }) => !request.sessionId && "a loop-built request must carry a session id"],
    ["live", "That session is live here",
      ({ request, live }) => request.sessionId !== live && `a loop-built request must carry a live session id, got "${request.sessionId}"`],
    ["messages-frozen", "Its messages are frozen",
      ({ request }) => !request.messagesFrozen && "a loop-built request must carry a frozen messages array"],
    ["log", "The log is whole and in order",
      ({ log, live }) => log.issue !== null && `llm request for session "${live}" rests on a damaged log: ${log.issue}`],
    ["step", "The log has a step/start",
      ({ log }) => !log.sawStep && "a loop-built request with no step/start in its session log"],
    ["header", "The log has a request/header",
      ({ log }) => !log.header && "a loop-built request with no request/header event in its session log"],
    ["derivation", "Every message equals its derivation",
      ({ request, log, live }) => firstMessage(request, log) !== null
        && `llm request for session "${live}" diverges from the dispatch-time durable derivation (log-reconstruction desync)`],
    ["fields", "Model, system and tools equal the header",
      ({ request, log, live }) => firstField(request, log) !== null
        && `llm request for session "${live}" diverges from the folded request header`],
  ].map(([id, says, run]) => ({ id, says, run: (facts) => {
    const detail = run(facts);
    return detail ? `invariant violated by "${LOOP}": ${detail}` : null;
  } }));

  /* The index of the first message that differs, or null. */
  const firstMessage = (request, log) => {
    const expected = messages(log);
    for (let i = 0; i < Math.max(expected.length, request.messages.length); i += 1) {
      if (expected[i]?.text !== request.messages[i]) return i;
    }
    return null;
  };
  /* The first header field that differs, or null. */
  const firstField = (request, log) => FIELDS.find((field) => request.header[field] !== log.header?.[field]) ?? null;

  /* The fold of `lines`. */
  const fold = (lines) => {
    const log = new Log();
    lines.forEach((line, at) => log.feed(line, at));
    return log;
  };

  /* Where requests left: at their digest, else at the first chunk of their answer. Each with the
   * number of lines before it, its turn, step and attempt. */
  const dispatches = (lines) => {
    const found = [];
    let attempt = 0, open = false;
    const leave = (at, { turn, step }) => { attempt += 1; open = true; found.push({ at, turn, step, attempt }); };
    lines.forEach((line, at) => {
      const data = line.value?.data;
      if (line.type === "step/start") { attempt = 0; open = false; }
      else if (line.type === "request/digest") leave(at, data);
      else if (line.row || line.type === "assistant/chunk") {
        if (!open) leave(at, data);
        if (data.chunk?.type === "finish") open = false;
      } else if (line.type === "assistant/message" && line.value.surfaceOp === "append") open = false;
    });
    return found;
  };

  return { FIELDS, CHECKS, Log, readLine, members, elements, messages, build, fold, dispatches, firstMessage, firstField, isObject };
})();
