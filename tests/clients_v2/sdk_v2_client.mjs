// The official TypeScript SDK's draft of version 2 as an editor: two agents one after the other.
// usage: sdk_v2_client.mjs MODULES AGENT; prints what happened as one line of JSON.
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const [modules, command] = process.argv.slice(2);
const entry = `${modules}/@agentclientprotocol/sdk/dist/v2/stable/acp.js`;
const acp = await import(pathToFileURL(entry));
const { agent: calls, client: asked } = acp.methods;

class Editor {
  updates = [];
  questions = [];
  kind = "allow_once";
  #waiting = [];

  take(update) {
    this.updates.push(update);
    this.#waiting = this.#waiting.filter(([is, done]) => !is(update) || done(update));
  }

  // Resolves once `is` holds, now or after an update.
  async until(is) {
    while (!is(this.seen())) await this.next(() => true);
  }

  // The next update for which `is` holds.
  next(is) {
    return new Promise((resolve) => this.#waiting.push([is, (update) => void resolve(update)]));
  }

  idle() {
    return this.next((u) => u.sessionUpdate === "state_update" && u.state === "idle");
  }

  // The texts of all messages, by the rules of upserts and chunks.
  texts(kind) {
    const found = new Map();
    for (const update of this.updates) {
      if (update.sessionUpdate === kind)
        found.set(update.messageId, update.content.map((item) => item.text).join(""));
      if (update.sessionUpdate === `${kind}_chunk`)
        found.set(update.messageId, found.get(update.messageId) + update.content.text);
    }
    return [...found.values()];
  }

  seen() {
    const of = (kind) => this.updates.filter((u) => u.sessionUpdate === kind);
    return {
      user: this.texts("user_message"),
      agent: this.texts("agent_message"),
      states: of("state_update").map((u) => u.stopReason ?? u.state),
      statuses: of("tool_call_update").map((u) => `${u.toolCallId} ${u.status}`),
      exits: of("terminal_update").filter((u) => u.exitStatus).map((u) => u.exitStatus),
      waiting: of("_pending_update").map((u) => u.pending.map((item) => item.content[0].text)),
      questions: this.questions,
    };
  }
}

async function withAgent(use) {
  const child = spawn(command, [], { stdio: ["pipe", "pipe", "inherit"] });
  const ended = new Promise((resolve) => child.on("exit", (code) => resolve(code)));
  const editor = new Editor();
  const app = acp
    .client({ name: "sdk" })
    .onRequest(asked.session.requestPermission, ({ params }) => {
      editor.questions.push(`${params.title}: ${params.subject.type}`);
      const option = params.options.find(({ kind }) => kind === editor.kind);
      return { outcome: { outcome: "selected", optionId: option.optionId } };
    })
    .onNotification(asked.session.update, ({ params }) => editor.take(params.update));
  const stream = acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout));
  const result = await app.connectWith(stream, async (agent) => {
    const hello = await agent.request(calls.initialize, {
      protocolVersion: acp.PROTOCOL_VERSION,
      info: { name: "sdk", version: "1" },
      capabilities: {},
    });
    return await use(agent, editor, hello);
  });
  child.stdin.end();
  return { ...result, exit: await ended, ...editor.seen() };
}

const send = (agent, sessionId, text, more = {}) =>
  agent.request(calls.session.prompt, {
    sessionId,
    prompt: [{ type: "text", text }],
    ...more,
  });

async function turn(agent, editor, sessionId, text) {
  const idle = editor.idle();
  const { messageId } = await send(agent, sessionId, text);
  const { stopReason } = await idle;
  return { messageId, stopReason };
}

const opening = { cwd: process.cwd() };
let sessionId;

const first = await withAgent(async (agent, editor, hello) => {
  ({ sessionId } = await agent.request(calls.session.new, opening));
  const allowed = await turn(agent, editor, sessionId, "make it");
  editor.kind = "reject_once";
  const denied = await turn(agent, editor, sessionId, "again");
  const speaking = editor.next((u) => u.sessionUpdate === "agent_message");
  const cancelled = turn(agent, editor, sessionId, "think");
  await speaking;
  await agent.notify(calls.session.cancel, { sessionId });
  const stops = [allowed, denied, await cancelled].map(({ stopReason }) => stopReason);
  return { version: hello.protocolVersion, stops };
});

const second = await withAgent(async (agent, editor) => {
  const { sessions } = await agent.request(calls.session.list, { cwd: process.cwd() });
  const replayFrom = { type: "start" };
  await agent.request(calls.session.resume, { sessionId, ...opening, replayFrom });
  await editor.until(({ states }) => states.length > 0); // handlers run behind the response
  const replayed = editor.seen();
  const speaking = editor.next((u) => u.sessionUpdate === "agent_message");
  const one = send(agent, sessionId, "one");
  await speaking;
  const two = send(agent, sessionId, "two");
  const three = send(agent, sessionId, "three", { _meta: { "dsh-acp": { steer: true } } });
  const ids = (await Promise.all([one, three, two])).map(({ messageId }) => messageId);
  await editor.until(({ states }) => states.filter((state) => state === "end_turn").length === 2);
  return { listed: sessions.map((s) => s.sessionId), replayed, distinct: new Set(ids).size };
});

console.log(JSON.stringify({ sessionId, first, second }));
