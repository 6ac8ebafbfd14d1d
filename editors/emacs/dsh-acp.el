;;; dsh-acp.el --- dsh-acp in agent-shell -*- lexical-binding: t; -*-

;;; Commentary:

;; Load this file from your init file, then M-x dsh-acp.
;; Needs agent-shell, shell-maker and acp (Emacs 29.1 or newer).

;;; Code:

(require 'acp)
(require 'agent-shell)

(defvar dsh-acp-command '("dsh-acp")
  "The program to start and its arguments.")

(defun dsh-acp-make-agent-config ()
  "What agent-shell needs to know of dsh-acp."
  (agent-shell-make-agent-config
   :identifier 'dsh-acp
   :mode-line-name "dsh-acp"
   :buffer-name "dsh-acp"
   :shell-prompt "dsh-acp> "
   :shell-prompt-regexp "dsh-acp> "
   :client-maker
   (lambda (buffer)
     (acp-make-client :command (car dsh-acp-command)
                      :command-params (cdr dsh-acp-command)
                      :context-buffer buffer))))

(defun dsh-acp ()
  "Start a session with dsh-acp."
  (interactive)
  (agent-shell-start :config (dsh-acp-make-agent-config)))

(add-to-list 'agent-shell-agent-configs (dsh-acp-make-agent-config) t)

(provide 'dsh-acp)
;;; dsh-acp.el ends here
