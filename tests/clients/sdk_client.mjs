// The official TypeScript SDK as an editor: two agents one after the other, one session.
// usage: sdk_client.mjs MODULES AGENT; prints what happened as one line of JSON.
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const [modules, command] = process.argv.slice(2);
const entry = `${modules}/@agentclientprotocol/sdk/dist/v1/stable/acp.js`;
const acp = await import(pathToFileURL(entry));
const { agent: calls, client: asked } = acp.methods;

async function withAgent(use) {
  const child = spawn(command, [], { stdio: ["pipe", "pipe", "inherit"] });
  const ended = new Promise((resolve) => child.on("exit", (code) => resolve(code)));
  const editor = { updates: [], questions: [], kind: "allow_once", told: () => {} };
  const app = acp
    .client({ name: "sdk" })
    .onRequest(asked.session.requestPermission, ({ params }) => {
      editor.questions.push(params.toolCall.title);
      const option = params.options.find(({ kind }) => kind === editor.kind);
      return { outcome: { outcome: "selected", optionId: option.optionId } };
    })
    .onNotification(asked.session.update, ({ params }) => {
      editor.updates.push(params.update);
      editor.told(params.update);
    });
  const stream = acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout));
  const result = await app.connectWith(stream, async (agent) => {
    const hello = await agent.request(calls.initialize, {
      protocolVersion: acp.PROTOCOL_VERSION,
      clientCapabilities: {},
    });
    return await use(agent, editor, hello);
  });
  child.stdin.end();
  return { ...result, exit: await ended, ...seen(editor) };
}

function seen({ updates, questions }) {
  const texts = (kind) =>
    updates.filter((u) => u.sessionUpdate === kind).map((u) => u.content.text).join("");
  const statuses = updates
    .filter((u) => u.sessionUpdate === "tool_call" || u.sessionUpdate === "tool_call_update")
    .map((u) => `${u.toolCallId} ${u.status}`);
  return { said: texts("agent_message_chunk"), user: texts("user_message_chunk"), statuses, questions };
}

const prompt = (agent, sessionId, text) =>
  agent.request(calls.session.prompt, { sessionId, prompt: [{ type: "text", text }] });

const opening = { cwd: process.cwd(), mcpServers: [] };
let sessionId;

const first = await withAgent(async (agent, editor, hello) => {
  ({ sessionId } = await agent.request(calls.session.new, opening));
  const allowed = await prompt(agent, sessionId, "make it");
  editor.kind = "reject_once";
  const denied = await prompt(agent, sessionId, "again");
  editor.told = (update) => {
    if (update.sessionUpdate === "agent_message_chunk")
      agent.notify(calls.session.cancel, { sessionId });
  };
  const cancelled = await prompt(agent, sessionId, "think");
  const stops = [allowed, denied, cancelled].map(({ stopReason }) => stopReason);
  return { version: hello.protocolVersion, stops };
});

const second = await withAgent(async (agent, editor) => {
  const { sessions } = await agent.request(calls.session.list, { cwd: process.cwd() });
  await agent.request(calls.session.load, { sessionId, ...opening });
  const replayed = seen(editor);
  const { stopReason } = await prompt(agent, sessionId, "and now?");
  return { listed: sessions.map((s) => s.sessionId), replayed, stops: [stopReason] };
});

console.log(JSON.stringify({ sessionId, first, second }));
