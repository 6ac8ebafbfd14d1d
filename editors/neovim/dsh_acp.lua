-- dsh-acp for Neovim: save as lua/dsh_acp.lua in your configuration, then use one of
--
--   require("codecompanion").setup({
--     adapters = { acp = { dsh_acp = function() return require("dsh_acp").codecompanion() end } },
--     interactions = { chat = { adapter = "dsh_acp" } },
--   })
--   require("avante").setup({
--     provider = "dsh-acp",
--     acp_providers = { ["dsh-acp"] = require("dsh_acp").avante },
--   })
--   require("agentic").setup({
--     provider = "dsh-acp",
--     acp_providers = { ["dsh-acp"] = require("dsh_acp").agentic },
--   })

local command = "dsh-acp"
local M = {}

function M.codecompanion()
  return {
    name = "dsh_acp",
    formatted_name = "dsh-acp",
    type = "acp",
    roles = { llm = "assistant", user = "user" },
    opts = { vision = true },
    commands = { default = { command } },
    defaults = { mcpServers = {}, timeout = 20000 },
    parameters = {
      protocolVersion = 1,
      clientCapabilities = { fs = { readTextFile = true, writeTextFile = true } },
      clientInfo = { name = "CodeCompanion.nvim", version = "1.0.0" },
    },
    handlers = {
      setup = function()
        return true
      end,
      -- The agent takes its key from the environment or from `dsh-acp login`.
      auth = function()
        return true
      end,
      form_messages = function(self, messages, capabilities)
        local helpers = require("codecompanion.adapters.acp.helpers")
        return helpers.form_messages(self, messages, capabilities)
      end,
      on_exit = function() end,
    },
  }
end

M.avante = { command = command, args = {} }
M.agentic = { name = "dsh-acp", command = command, args = {}, env = {} }

return M
