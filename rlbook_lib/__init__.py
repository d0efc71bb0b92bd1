"""The library behind an interactive textbook of reinforcement learning.

It reads in chapter order. A module imports only modules that stand above it in this list:

- ``needs``                what has to be installed, and one clear sentence where it is missing (every chapter)
- ``checks``               arguments and settings, checked by their annotations (every chapter)
- ``mdp``                  Markov decision processes: transitions, rewards, discount, sampling (chapter 2)
- ``maze``                 the 2x3 maze as a Gymnasium environment and as an exact MDP (chapter 3)
- ``dynamic_programming``  exact evaluation; value, policy and modified policy iteration (chapters 2, 3)
- ``returns``              discounted, n-step and lambda returns; generalized advantages (chapters 2, 4, 7)
- ``experience``           many runs at once, from a table or a real environment; schedules; epsilon-greedy (chapter 4)
- ``monte_carlo``          first-visit prediction and control (chapter 4)
- ``temporal_difference``  TD(0), n-step TD, SARSA, expected SARSA, Q-learning (chapter 4)
- ``devices``              where tensors live, how many threads work, what a run costs; recorded GPU runs (chapters 5 on)
- ``networks``             small networks: policies, values, action values (chapter 5)
- ``environments``         many copies of an environment side by side; a batched CartPole (chapter 5)
- ``training``             what every trainer shares: one record per update, checkpoints, evaluation (chapter 5)
- ``replay_buffer``        a finite first-in-first-out memory of transitions (chapter 5)
- ``dqn``                  DQN and double DQN: targets, loss, target networks, training (chapter 5)
- ``rollout``              one frozen record of collected experience, and its collection (chapter 6)
- ``gradient_estimators``  the policy gradient: exact, estimated, with baselines; its variance (chapter 6)
- ``policy_gradient``      the loss whose gradient it is, REINFORCE and A2C (chapter 6)
- ``divergences``          entropy, KL divergence, importance weights and their estimators (chapter 8)
- ``trpo``                 trust regions: surrogate, Fisher-vector products, conjugate gradient, training (chapter 9)
- ``ppo``                  clipped and penalized objectives, training (chapter 10)
- ``language_model``       characters to tokens, a small transformer, sampling, token log-probabilities (chapter 11)
- ``text_tasks``           tasks with checkable answers, biased demonstrations, preferences by a hidden score (chapter 11)
- ``fine_tuning``          supervised fine-tuning (chapter 11)
- ``reward_model``         Bradley-Terry, the pairwise loss, a reward model (chapter 11)
- ``rlhf``                 PPO on a language model: shaped token rewards, four models, training (chapter 12)
- ``grpo``                 group advantages, the GRPO objective and its variants, training, what it costs (chapter 13)
- ``engines``              the settings of GRPO under the names of TRL, verl and OpenRLHF (chapter 13)
- ``grpo_command``         GRPO on a model and a task of your own, from the command line (chapter 13)
- ``evaluation``           many seeds: made here or on a cluster, and what they show (every chapter with a learning curve)
- ``svg``                  figures as short SVG for light and dark pages (behind every figure)
- ``explore``              the interactive figure (every chapter)
- ``figures``              drawings that more than one page uses, and the figures' style (every chapter)

What comes in is checked once, at the door (``checks``): a wrong shape, an empty array, a number that is not finite or
out of range, an unknown word, a flag that is neither 0 nor 1 raise ValueError; the wrong kind of thing raises TypeError.
The annotations say what is expected, and each error names the argument. ``Raises`` in a docstring tells only what goes
beyond that.

Nothing but ``needs`` is imported here: ``from rlbook_lib.mdp import MDP`` says where a name lives.
"""

from rlbook_lib.needs import check_installation

__version__ = "0.1.0"

check_installation()
del check_installation
